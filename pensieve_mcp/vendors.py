"""Where the vendors' APIs are, said once: for hosts that name no other, `--anthropic`, `--openai` and our own loop."""

from __future__ import annotations

ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com"
CHATGPT = "https://chatgpt.com/backend-api/codex"  # where Codex goes when logged in with ChatGPT
V1 = "/v1"  # what hosts of both write behind the name, and CHATGPT has not
