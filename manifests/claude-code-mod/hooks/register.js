// Claude Code mod (2.1.287 or later): makes deleteContext physical without a gateway, at compaction.
//
// A mod may not touch the conversation while a turn runs, but it owns compaction: the messages that this hook
// returns become the transcript, with no model call. So it hands back every message as it was, less the text of
// the results which the model has deleted. What is deleted is read off the transcript, so resumed and forked
// sessions come out right. Early access: the interface may change between releases.
import { forgotten } from "./forgetting.js"

const DELETES = /(?:^|_)pensieve_{1,2}deleteContext$/

// Each use carries its result; both are named by the handle line, the one name that use and result share.
const nameOf = text => /^m\d{1,14}(?= · )/.exec(text ?? "")?.[0]
const stepsOf = messages =>
  messages
    .flatMap(m => m.toolUses ?? [])
    .map(u => ({ id: nameOf(u.text), tool: u.tool, input: u.input, text: u.text, isError: u.isError }))

export const register = on => {
  let isDirty = false
  on("tool.call", async ($, e, next) => {
    const ran = await next(e)
    if (DELETES.test(e.tool) && !ran.isError) isDirty = true
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
    const stubs = forgotten(stepsOf(e.messages))
    let isAnyChanged = false
    const messages = e.messages.map(m => {
      if (!(m.toolResults ?? []).some(t => stubs.has(nameOf(t.text)))) return m
      isAnyChanged = true
      const toolResults = m.toolResults.map(t => {
        const stub = stubs.get(nameOf(t.text))
        return stub === undefined ? t : { tool_use_id: t.tool_use_id, text: stub, isError: false }
      })
      // A message handed back whole keeps its handle; one without is built from these fields.
      return { role: m.role, text: m.text, toolUses: m.toolUses ?? [], toolResults }
    })
    return isAnyChanged ? { messages } : next(e) // nothing to drop: Claude Code's own compaction
  }).catch(($, e, next) => next(e))
}
