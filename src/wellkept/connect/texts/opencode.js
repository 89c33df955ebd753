// Written by `kept connect opencode`; `kept disconnect opencode` removes it. Edits are lost when it is written anew.
import { spawn } from "node:child_process"

const COMMAND = @COMMAND@
// kept ends by itself long before; this is for a process that cannot even start
const LIMIT_MS = 10_000

// Run `kept hook opencode`; resolve with its answer, or with nothing: kept must never be in the way.
function ask(event) {
  return new Promise((resolve) => {
    let text = ""
    let timer
    const finish = (value) => {
      clearTimeout(timer)
      resolve(value)
    }
    try {
      const child = spawn(COMMAND[0], [...COMMAND.slice(1), "hook", "opencode"], { stdio: ["pipe", "pipe", "ignore"] })
      timer = setTimeout(() => {
        child.kill()
        finish("")
      }, LIMIT_MS)
      child.on("error", () => finish(""))
      child.stdin.on("error", () => {})
      child.stdout.on("data", (data) => (text += data))
      child.on("close", () => {
        try {
          finish(JSON.parse(text).hookSpecificOutput?.additionalContext ?? "")
        } catch {
          finish("")
        }
      })
      child.stdin.end(JSON.stringify(event))
    } catch {
      finish("")
    }
  })
}

// Start `kept hook opencode` and do not wait: it goes on when opencode ends right after the turn.
function tell(event) {
  try {
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), "hook", "opencode", JSON.stringify(event)], {
      detached: true,
      stdio: "ignore",
    })
    child.on("error", () => {})
    child.unref()
  } catch {}
}

export const Kept = async ({ directory }) => {
  const blocks = new Map()
  const base = (session_id, hook_event_name) => ({ hook_event_name, session_id, cwd: directory })
  return {
    "chat.message": async (input, output) => {
      const session = input.sessionID
      if (!blocks.has(session)) {
        blocks.set(session, "")
        blocks.set(session, await ask({ ...base(session, "SessionStart"), source: "startup" }))
      }
      const said = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      if (!said.length) return
      const found = await ask({ ...base(session, "UserPromptSubmit"), prompt: said.join("\n") })
      if (!found) return
      output.parts.push({
        id: `prt_kept${Date.now().toString(36)}${Math.random().toString(36).slice(2, 10)}`,
        sessionID: session,
        messageID: output.message.id,
        type: "text",
        text: found,
        synthetic: true,
      })
    },
    "experimental.chat.system.transform": async (input, output) => {
      const block = blocks.get(input.sessionID)
      // opencode asks for a title with the same session: that call needs no memory
      if (block && !output.system.some((text) => text.startsWith("You are a title generator"))) output.system.push(block)
    },
    event: async ({ event }) => {
      const session = event.properties?.sessionID
      if (event.type === "session.idle" && session) tell(base(session, "Stop"))
      if (event.type === "session.compacted" && session) tell(base(session, "PreCompact"))
    },
  }
}
