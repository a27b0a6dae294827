"""Trajectories: kept in our format (the ledger's export, exact and replayable) and in the published one (for
the paper's tools and training), and looked at again without a workspace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pensieve_mcp.errors import Miscast
from pensieve_mcp.ledger.events import IN_MIND, Event, Forgot, Message, Recalled, Said, fold
from pensieve_mcp.ledger.folding import Standing, standing
from pensieve_mcp.ledger.schema import event_from
from pensieve_mcp.ledger.transfer import sizes
from pensieve_mcp.spellbook.wording import count
from pensieve_mcp.statelm.turns import Asked, Metrics

if TYPE_CHECKING:
    from pensieve_mcp.statelm.conversation import Conversation

FORMAT = "pensieve-episode"
MEMORY = ("note", "updateNote", "readNote")


def save(conversation: Conversation, asked: Asked, path: Path, *, wanted: str = "") -> tuple[Path, Path]:
    """Write both formats: ours as `path`, the published one beside it as `…published.json`. Raises OSError,
    StorageError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(conversation.workspace.ledger.export_episode(conversation.episode_id))
    beside = path.with_name(path.name + ".published.json")
    beside.write_text(
        json.dumps(published(conversation, asked, wanted=wanted), ensure_ascii=False, indent=1), "utf-8"
    )
    return path, beside


def published(conversation: Conversation, asked: Asked, *, wanted: str = "") -> dict[str, Any]:
    """The reference code's record of a run: fields and ids as there, full history with what was deleted from the
    context named beside it."""
    history: list[dict[str, Any]] = [{"role": "user", "content": conversation.question}]
    deleted = []
    for number, entry in enumerate(conversation.spoken(), 1):
        message = entry.message
        if entry.forgotten:
            deleted.append(number)
        if message.role == "assistant":
            name, arguments = conversation.call_of(entry)
            history.append(
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": message.kept_thought}]
                    if message.kept_thought
                    else [],
                    "tool_calls": [{"id": f"call_{number}", "name": name, "input": arguments}]
                    if name
                    else [],
                    "msg_id": number,
                }
            )
        else:
            history.append(
                {
                    "role": "tool",
                    "content": _content(conversation.text_of(entry)),
                    "msg_id": number,
                    "msg_id(invoking_assistant)": number - 1,
                    "tool_use_id": f"call_{number - 1}",
                    "tool_name": message.tool,
                }
            )
    return {
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": asked.model,
        "session_notes_summary": {
            conversation.shown_key(note.key): note.summary for note in conversation.notes()
        },
        "api_call_count": asked.metrics.rounds,
        "final_answer": asked.answer,
        "correct_answer": wanted,
        "full_history": history,
        "deleted_msg_ids": deleted,
        "meta_info": {
            "dialect": asked.dialect,
            "ended": asked.ended,
            "grounded": asked.grounded,
            "rounds": asked.metrics.rounds,
            "peak_tokens": asked.metrics.peak_tokens,
        },
    }


def _content(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text}
    return value if isinstance(value, dict) else {"text": text}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A saved trajectory: what happened, and the contents of what was said, by message number."""

    title: str
    events: tuple[Event, ...]
    contents: dict[int, str | None]
    in_mind: tuple[int, ...] = ()

    def states(self) -> Iterator[Standing]:
        """Each event with the tokens visible after it."""
        return standing(self.events, self.in_mind)


def load(path: Path) -> Recorded:
    """A trajectory saved by `save`, or exported by `pensieve episodes export`. Raises Miscast."""
    try:
        return parse(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Miscast(
            f"{path} cannot be read: {error}.", hint="Name another file.", slug="bad_import"
        ) from error


def parse(lines: Sequence[str], name: str = "This") -> Recorded:
    """The lines of an export. Raises Miscast."""
    try:
        head = json.loads(lines[0])
        if head["format"] != FORMAT:
            raise KeyError("format")
        parsed = [json.loads(line) for line in lines[1:] if line.strip()]
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise Miscast(
            f"{name} is no saved trajectory ({error}).",
            hint="Give a file written by pensieve ask --save or pensieve episodes export.",
            slug="bad_import",
        ) from error
    events: list[Event] = []
    contents: dict[int, str | None] = {}
    for value in parsed:
        kind = next((key for key in value if key != "at"), "")
        body = value.get(kind)
        if not isinstance(body, dict):
            continue
        if kind != "said":
            if (event := event_from(kind, body)) is not None:
                events.append(event)
            continue
        known = {name: body[name] for name in Message.__dataclass_fields__ if name in body}
        known |= {"digest": b"", "chunk_ids": tuple(known.get("chunk_ids", ()))}
        message = Message(**known)
        contents[message.number] = body.get("content")
        events.append(Said(message))
    in_mind = tuple(sizes(head.get(IN_MIND)))
    return Recorded(str(head.get("episode", {}).get("title", "")), tuple(events), contents, in_mind)


def metrics_of(events: Sequence[Event], in_mind: Sequence[int] = ()) -> Metrics:
    """The paper's measures of any recorded conversation; `in_mind` as in `standing`."""
    counts: dict[str, int] = {}
    visible: list[int] = []
    errors = peak = 0
    for stood in standing(events, in_mind):
        event = stood.event
        peak = max(peak, stood.visible)
        if isinstance(event, Said) and event.message.role == "tool":
            if event.message.is_error:
                errors += 1
            else:
                counts[event.message.tool] = counts.get(event.message.tool, 0) + 1
            visible.append(stood.visible)
    transcript = fold(events)
    reads = counts.get("readChunk", 0) + counts.get("loadDocument", 0)
    deletions = counts.get("deleteContext", 0)
    return Metrics(
        rounds=transcript.rounds,
        memory_operations=sum(counts.get(name, 0) for name in MEMORY),
        deletions=deletions,
        searches=counts.get("searchEngine", 0),
        reads=reads,
        errors=errors,
        peak_tokens=peak,
        mean_tokens=round(sum(visible) / len(visible), 1) if visible else 0.0,
        said_tokens=sum(e.message.tokens for e in transcript.entries),
        freed_tokens=transcript.freed_tokens,
        deletions_per_read=round(deletions / reads, 2) if reads else 0.0,
    )


def told(metrics: Metrics) -> str:
    """The measures in one line, in the order of the paper's table."""
    return (
        f"{count(metrics.rounds, 'round')} / {count(metrics.memory_operations, 'memory operation')} / "
        f"{count(metrics.deletions, 'deletion')} / {count(metrics.searches, 'search', 'searches')}; "
        f"peak {metrics.peak_tokens:,}, mean {metrics.mean_tokens:,.0f}, freed "
        f"{metrics.freed_tokens:,} of {metrics.said_tokens:,} tokens said; "
        f"{metrics.deletions_per_read:g} {'deletion' if metrics.deletions_per_read == 1 else 'deletions'} a read"
    )


def replay(recorded: Recorded) -> Iterable[str]:
    """What happened, line by line: for people, and to see that a saved file holds everything."""
    for stood in recorded.states():
        event, visible = stood.event, stood.visible
        if isinstance(event, Said):
            message = event.message
            text = " ".join((recorded.contents.get(message.number) or "(content gone)").split())
            what = f"m{message.number} {message.role} {message.tool}".rstrip()
            thought = f" “{message.kept_thought}”" if message.kept_thought else ""
            yield f"{visible:>7,}  {what}:{thought} {text[:200]}"
        elif isinstance(event, Forgot):
            yield f"{visible:>7,}  forgot {', '.join(f'm{n}' for n in event.numbers)} ({event.reason})"
        elif isinstance(event, Recalled):
            yield f"{visible:>7,}  recalled {', '.join(f'm{n}' for n in event.numbers)}"
