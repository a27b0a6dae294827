"""A person is asked, through the client, before a model deletes a note; where `note_deletes` is `ask`.

The protocol's form elicitation, in both eras: older clients are sent a request while the call waits, newer ones get the
question as the call's answer and send the call again with theirs. An answer counts for the very revision that was
shown. Who cannot be asked, does not answer, or answers too late, leaves the note marked, as the spell does by itself.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from pensieve_mcp.episode import Approval
from pensieve_mcp.spellbook.wording import one_line
from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

ANSWER_SECONDS = 45.0  # hosts give a call 60 and more
FIELD = "delete"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        FIELD: {"type": "boolean", "title": "Delete the note", "description": "Its revisions stay readable."}
    },
    "required": [FIELD],
}

Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked. `name` is bound to key and revision."""

    name: str
    words: str
    revision: int


def question_of(
    workspace: Workspace, name: str, arguments: Mapping[str, Any], author: str
) -> Question | None:
    """The question this call raises; None where nobody wants to be asked or there is nothing to delete."""
    key = arguments.get("key")
    if name != "updateNote" or arguments.get("mode") != "delete" or not isinstance(key, str):
        return None
    if workspace.settings.note_deletes != "ask":
        return None
    note = workspace.notebook.current(key)
    if note is None or note.deleted:
        return None
    bound = hashlib.sha256(f"{note.key}\0{note.revision}".encode()).hexdigest()[:16]
    shown = f"“{one_line(note.key, 80)}”: {one_line(note.summary, 200)}"
    return Question(
        f"delete-note-{bound}", f"{author or 'A model'} wants to delete the note {shown}", note.revision
    )


def can_ask(ctx: Context) -> bool:
    """Whether the client shows forms; capabilities of the time before modes existed mean that, too."""
    told = ctx.session.client_capabilities
    shown = told.elicitation if told is not None else None
    return shown is not None and (shown.form is not None or shown.url is None)


async def ask(
    ctx: Context, params: types.CallToolRequestParams, question: Question, *, stateless: bool
) -> Approval | types.InputRequiredResult | None:
    """What the person answered, None without an answer, or the question itself for a newer client."""
    form = types.ElicitRequestFormParams(message=question.words, requested_schema=SCHEMA)
    if stateless:
        given = (params.input_responses or {}).get(question.name)
        if isinstance(given, types.ElicitResult):
            return _meant(given, question)
        request = types.ElicitRequest(params=form)
        return types.InputRequiredResult(input_requests={question.name: request})
    try:
        with anyio.move_on_after(ANSWER_SECONDS):
            return _meant(await ctx.session.elicit_form(form.message, SCHEMA, ctx.request_id), question)
    except MCPError as error:
        log.info("nobody could be asked: %s", error)
    return None


def _meant(given: types.ElicitResult, question: Question) -> Approval | None:
    if given.action == "cancel":
        return None
    agreed = given.action == "accept" and (given.content or {}).get(FIELD) is True
    return Approval(agreed, question.revision)
