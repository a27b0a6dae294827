"""Precious files of a state folder that had to be begun anew although others show that they existed.

An empty `pensieve.db` looks like that of a new workspace; whoever lost one should hear of it, and again later. What
is found is remembered in a file of its own, which a person may delete once it is no news any more.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

log = logging.getLogger(__name__)

FILE = "begun_anew.json"
MOST = 20  # entries kept

_MEANING = {
    "pensieve.db": (
        "notes and conversations from before are not in it, and message numbers begin at m1 again: what was "
        "numbered before is known to no other file (chunk ids are taken over from corpus.db)"
    ),
    "blobs.db": "texts of messages from before cannot be brought back",
}


def look(state: Path, name: str) -> None:
    """Before `name` is opened: where it is missing or empty, and another file shows that it was there, remember it
    and say so in the log. Never raises for what cannot be read or written: opening will."""
    from pensieve_mcp.storage import holds_rows

    file = state / name
    try:
        if file.stat().st_size:
            return
    except FileNotFoundError:
        pass
    except OSError:
        return
    others = (
        (("corpus.db", "chunks"), ("blobs.db", "contents"))
        if name == "pensieve.db"
        else (("pensieve.db", "messages"),)
    )
    witness = next((other for other, table in others if holds_rows(state / other, table)), "")
    if not witness:
        return
    entries = [*_read(state), {"file": name, "at": time.time(), "witness": witness}]
    log.warning("%s", _sentence(entries[-1]))
    try:
        (state / FILE).write_text(json.dumps(entries[-MOST:]), encoding="utf-8")
    except OSError as error:
        log.warning("That could not be written down: %s", error)


def told(state: Path) -> tuple[str, ...]:
    """What was begun anew, as sentences, the newest of each file."""
    newest = {str(entry.get("file")): entry for entry in _read(state)}
    return tuple(_sentence(entry) for entry in newest.values())


def _read(state: Path) -> list[dict[str, object]]:
    try:
        entries = json.loads((state / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", state / FILE, str(error)[:200])
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _sentence(entry: dict[str, object]) -> str:
    name, at = str(entry.get("file")), entry.get("at")
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at if isinstance(at, int | float) else 0.0))
    return (
        f"{name} was missing or empty on {when} although {entry.get('witness')} shows that there was one, and was "
        f"begun anew: {_MEANING.get(name, 'what was in it is lost')}. Restore a backup of it if there is one."
    )
