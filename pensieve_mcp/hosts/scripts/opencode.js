// opencode plugin: what the model deleted with pensieve's deleteContext is not sent to it again. opencode hands every
// request's messages to this hook just before they go; its own record of the conversation stays whole. Which results and
// calls stand forgotten, it asks the one rule of pensieve. Not needed behind `pensieve run opencode`, which does more.
import { spawn } from "node:child_process"

const RULE = ["pensieve", "hook", "forgotten"]
const OURS = /^(?:mcp_)?pensieve_([A-Za-z]+)$/
const TELLS = ["deleteContext", "restoreContext", "checkBudget"] // their answers say what the prompt holds
const CHANGES = ["deleteContext", "restoreContext"]
const MARK = "pensieve_plugin"
const PATIENCE_MS = 60_000 // a runner may have to fetch the program at first
const WRITTEN_MS = 1_000 // for opencode to write down a call as it begins; it takes some milliseconds

const ask = steps =>
  new Promise(done => {
    const pieces = []
    const child = spawn(RULE[0], RULE.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    const patience = setTimeout(() => child.kill(), PATIENCE_MS)
    const answered = answer => {
      clearTimeout(patience)
      done(answer)
    }
    child.on("error", () => answered(undefined))
    child.stdin.on("error", () => {})
    child.stdout.on("data", piece => pieces.push(piece))
    child.on("close", code => {
      try {
        answered(code === 0 ? JSON.parse(Buffer.concat(pieces).toString("utf8")) : undefined)
      } catch {
        answered(undefined)
      }
    })
    child.stdin.end(JSON.stringify({ steps }))
  })

// Calls and results by their numbers, as a msg_id names them: two to a step, `1-6,9-10`.
const runs = numbers =>
  numbers
    .map(Number)
    .reduce((all, n) => {
      const last = all.at(-1)
      if (last?.[1] === n - 2) last[1] = n
      else all.push([n - 1, n])
      return all
    }, [])
    .map(([first, last]) => `${first}-${last}`)
    .join(",")

export const Pensieve = async () => {
  const sessions = new Map() // session → { key, answer, present }
  const begun = new Map() // call → { isWritten, done }
  const writing = callID => {
    if (!begun.has(callID)) {
      if (begun.size > 64) begun.delete(begun.keys().next().value) // calls that never ended
      const one = {}
      one.isWritten = new Promise(done => (one.done = done))
      begun.set(callID, one)
    }
    return begun.get(callID)
  }
  let isAnswered // a promise: whether the rule answers here; without it nothing is dropped, and nothing is said

  return {
    event: async ({ event }) => {
      const part = event.type === "message.part.updated" ? event.properties.part : undefined
      if (part?.type !== "tool" || !TELLS.includes(OURS.exec(part.tool)?.[1])) return
      if (part.state.status === "running") writing(part.callID).done()
    },

    "experimental.chat.messages.transform": async (_input, output) => {
      const parts = output.messages.flatMap(m => m.parts).filter(p => p.type === "tool" && OURS.test(p.tool))
      if (parts.length === 0) return
      for (const part of parts) if (part.state.input) delete part.state.input[MARK]
      const session = parts[0].sessionID
      const done = parts.filter(p => p.state.status === "completed")
      const kept = sessions.get(session) ?? { key: "", answer: undefined }
      kept.present = runs(done.map(p => /^m(\d{1,14}) · /.exec(p.state.output)?.[1]).filter(n => n !== undefined))
      sessions.set(session, kept)

      const changes = done.filter(p => CHANGES.includes(OURS.exec(p.tool)[1])).map(p => p.callID)
      if (changes.length === 0) return
      const key = JSON.stringify([done[0].callID, changes])
      if (kept.answer === undefined || kept.key !== key) {
        const steps = done.map(p => ({ id: p.callID, tool: p.tool, input: p.state.input, text: p.state.output }))
        kept.answer = await ask(steps)
        kept.key = key
      }
      for (const part of done) {
        if (part.callID in (kept.answer?.results ?? {})) part.state.output = kept.answer.results[part.callID]
        if (part.callID in (kept.answer?.calls ?? {})) part.state.input = kept.answer.calls[part.callID]
      }
    },

    "tool.execute.before": async (input, output) => {
      const tool = OURS.exec(input.tool)?.[1]
      if (tool === undefined) return
      isAnswered ??= ask([]).then(answer => answer !== undefined)
      if (!TELLS.includes(tool)) return
      if (!(await isAnswered)) {
        isAnswered = undefined // perhaps next time
        return
      }
      // opencode shows and keeps these very arguments: the word to the server goes in after it has written them down as
      // the call begins, and out before it does so as the call ends.
      const { isWritten } = writing(input.callID)
      await Promise.race([isWritten, new Promise(done => setTimeout(done, WRITTEN_MS))])
      output.args[MARK] = `request present=${sessions.get(input.sessionID)?.present ?? ""}`
    },

    "tool.execute.after": async input => {
      begun.delete(input.callID)
      if (OURS.test(input.tool)) delete input.args?.[MARK]
    },
  }
}
