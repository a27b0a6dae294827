// Claude Code mod (2.1.287 or later): takes what was deleted with pensieve's deleteContext out of the conversation itself,
// at compaction, without a gateway.
//
// A mod may not touch the conversation while a turn runs, but it owns compaction: the messages that this hook returns become
// the transcript, with no model call. So it hands back every message as it was, less the results and the arguments of calls
// which stand forgotten. Which those are, it asks the one rule of pensieve, which reads it off the transcript; so resumed and forked
// sessions come out right. Early access: the interface may change between releases.
const RULE = ["pensieve", "hook", "forgotten"]
const OURS = /^mcp__(?:plugin_.+_)?pensieve__([A-Za-z]+)$/
const TELLS = ["deleteContext", "restoreContext", "checkBudget"] // their answers say what the prompt holds
const PATIENCE_MS = 60_000 // a runner may have to fetch the program at first

// Each use carries its result; both are named by the handle line, the one name that use and result share.
const nameOf = text => /^m\d{1,14}(?= · )/.exec(text ?? "")?.[0]
const stepsOf = messages =>
  messages
    .flatMap(m => m.toolUses ?? [])
    .map(u => ({ id: nameOf(u.text), tool: u.tool, input: u.input, text: u.text, isError: u.isError }))
    .filter(step => step.id !== undefined)

const ask = async ($, question) => {
  try {
    const ran = await $.process.run(RULE, { stdin: JSON.stringify(question), timeoutMs: PATIENCE_MS })
    return ran.exitCode === 0 ? JSON.parse(ran.stdout) : undefined
  } catch {
    return undefined
  }
}

export const register = on => {
  let isDirty = false
  let isAnswered // a promise: whether the rule answers here; without it nothing is dropped, and nothing is said
  const gone = new Set() // what this mod took out of the conversation for good

  on("tool.call", async ($, e, next) => {
    const tool = OURS.exec(e.tool)?.[1]
    if (tool === undefined) return next(e)
    isAnswered ??= ask($, { steps: [] }).then(answer => answer !== undefined)
    if (!TELLS.includes(tool)) return next(e)
    if (!(await isAnswered)) {
      isAnswered = undefined // perhaps next time
      return next(e)
    }
    const told = ["compaction", `call=${e.tool_use_id}`, ...(gone.size > 0 ? [`gone=${[...gone].join(",")}`] : [])]
    const ran = await next({ ...e, pensieve_plugin: told.join(" ") })
    if (tool === "deleteContext" && !ran.isError) isDirty = true
    return ran
  }).catch(($, e, next) => next(e))

  on("turn.complete", async ($, e, next) => {
    const done = await next(e)
    if (isDirty && e.agentId === undefined) {
      isDirty = false
      // Refused under -p and in the SDK: there the token threshold brings the compaction about.
      void $.session.compact({}).catch(() => {})
    }
    return done
  })

  on("session.compact", async ($, e, next) => {
    const steps = stepsOf(e.messages)
    const isAnyDeleted = steps.some(step => OURS.exec(step.tool)?.[1] === "deleteContext")
    // With the session's name, the hook that follows a compaction learns that this one took nothing else.
    const compacts = isAnyDeleted ? await $.session.id() : ""
    const { results = {}, calls = {} } = (isAnyDeleted ? await ask($, { steps, compacts }) : undefined) ?? {}
    let isAnyChanged = false
    const messages = e.messages.map(m => {
      if ((m.toolUses ?? []).some(u => nameOf(u.text) in calls)) {
        isAnyChanged = true
        // Thinking stands in messages of its own; these hold calls, and words said with them.
        const toolUses = m.toolUses.map(({ tool_use_id, tool, input, text }) => {
          const name = nameOf(text)
          if (!(name in calls)) return { tool_use_id, tool, input }
          gone.add(`m${Number(name.slice(1)) - 1}`) // a call's number is its result's less one
          return { tool_use_id, tool, input: calls[name] }
        })
        return { role: m.role, text: m.text, toolUses }
      }
      if (!(m.toolResults ?? []).some(t => nameOf(t.text) in results)) return m
      isAnyChanged = true
      const toolResults = m.toolResults.map(t => {
        const name = nameOf(t.text)
        if (!(name in results)) return t
        if (nameOf(results[name]) === undefined) gone.add(name) // else parts of it stand
        return { tool_use_id: t.tool_use_id, text: results[name], isError: false }
      })
      // A message handed back whole keeps its handle; one without is built from these fields.
      return { role: m.role, text: m.text, toolUses: m.toolUses ?? [], toolResults }
    })
    return isAnyChanged ? { messages } : next(e) // nothing to drop: Claude Code's own compaction
  }).catch(($, e, next) => next(e))
}
