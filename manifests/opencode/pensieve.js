// opencode plugin: what the model deleted with deleteContext is not sent to it again. opencode hands every
// request's messages to this hook just before they go; its own record of the conversation stays whole.
// Copy both files of this folder's .js to .opencode/plugin/ of a project, or to ~/.config/opencode/plugin/.
// Not needed behind `pensieve run opencode`, which does the same and more.
import { forgotten } from "./forgetting.js"

export const Pensieve = async () => ({
  "experimental.chat.messages.transform": async (_input, output) => {
    const parts = output.messages.flatMap(m => m.parts).filter(p => p.type === "tool" && p.state.status === "completed")
    const stubs = forgotten(parts.map(p => ({ id: p.callID, tool: p.tool, input: p.state.input, text: p.state.output })))
    for (const part of parts) if (stubs.has(part.callID)) part.state.output = stubs.get(part.callID)
  },
})
