// Which results of a conversation stand forgotten: the same rule as the gateway's (pensieve_mcp/gateway/reading.py),
// for hosts that let a plugin change messages. A test holds both to the same answers.
//
// Only calls of our own server count, and only those that succeeded: their result begins with a handle line that
// is no error's. A line that looks like one inside a document is text.
const OURS = /^(?:mcp__(?:plugin_.+_)?pensieve__|(?:mcp_)?pensieve_)([A-Za-z]+)$/
const HEAD = /^(?:Wall time: [0-9.]+ seconds\n)?(?:Output:\n)?(?:\{\s*"handle":\s*")?m(\d{1,14}) · ([^\n"]*)/
const TOKENS = /(?:^| · )([\d,]+) tokens(?: · |$)/
const TRUE = ["true", "1", "yes", "on", "t", "y"]
const FALSE = ["false", "0", "no", "off", "f", "n"]
const LONGEST_RANGE = 10_000

// The numbers that a msg_id names; undefined for what is no list of handles. Parts (m12.2) and h handles pass by:
// parts stay whole here, and h handles are the gateway's.
const numbersIn = msgId => {
  const text = String(msgId).trim().replace(/^[[\]]+|[[\]]+$/g, "").replace(/['"]/g, "").replace(/\s*(-|–|\.\.)\s*/g, "$1")
  const numbers = []
  for (const piece of text.split(/[,;\s]+/)) {
    if (piece === "") continue
    const one = /^m?(\d{1,15})(\.\d{1,6})?$/i.exec(piece)
    const range = /^m?(\d{1,15})(?:-|–|\.\.)m?(\d{1,15})$/i.exec(piece)
    if (one) {
      if (!one[2]) numbers.push(Number(one[1]))
    } else if (range) {
      const [first, last] = [Number(range[1]), Number(range[2])].sort((a, b) => a - b)
      if (last - first >= LONGEST_RANGE) return undefined
      for (let n = first; n <= last; n += 1) numbers.push(n)
    } else if (!/^h[0-9a-f]{2,32}(\.\d{1,6})?$/i.test(piece)) return undefined
  }
  return numbers
}

// `steps`: calls with their results in order, {id, tool, input, text, isError}. Answers id → stub.
export const forgotten = steps => {
  const known = new Map() // number → {id, stub}
  const gone = new Set()
  const pinned = new Set()
  for (const step of steps) {
    const tool = OURS.exec(step.tool)?.[1]
    const head = tool && HEAD.exec(step.text ?? "")
    if (!head) continue
    const number = Number(head[1])
    const facts = head[2]
    if (known.has(number)) continue
    const tokens = TOKENS.exec(facts)
    const label = tokens ? facts.slice(0, tokens.index) : ""
    const line = [`pensieve: m${number} forgotten`, `${tool} result`, label.slice(0, 80), `${tokens?.[1] ?? "?"} tokens`]
    known.set(number, { id: step.id, stub: `[${line.filter(Boolean).join(" · ")} · restoreContext m${number} brings it back]` })
    const failed = step.isError || facts.startsWith("error ·") || facts.includes(" · error ·")
    if (failed || !["deleteContext", "restoreContext"].includes(tool)) continue
    const named = numbersIn(step.input?.msg_id ?? "-")
    if (named === undefined) continue
    const numbers = named.filter(n => known.has(n) && n < number - 1)
    const pin = step.input?.pin ?? undefined
    if (tool === "restoreContext") numbers.forEach(n => gone.delete(n))
    else if (pin === undefined) numbers.filter(n => !pinned.has(n)).forEach(n => gone.add(n))
    else if (TRUE.includes(String(pin).toLowerCase())) numbers.forEach(n => pinned.add(n))
    else if (FALSE.includes(String(pin).toLowerCase())) numbers.forEach(n => pinned.delete(n))
  }
  return new Map([...gone].map(n => [known.get(n).id, known.get(n).stub]))
}
