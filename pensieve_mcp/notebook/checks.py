"""What may be a key, a summary, a content: refused with the next step, never cut in silence."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from pensieve_mcp.errors import Miscast
from pensieve_mcp.notebook.types import Evidence, NoteLimits

_FOLDED = re.compile(r"[\s_\-]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


def folded(key: str) -> str:
    """What two keys share that a person would take for one: case, spaces, `_` and `-` do not count."""
    return _FOLDED.sub("", unicodedata.normalize("NFKC", key).casefold())


def checked_key(key: str, limits: NoteLimits) -> str:
    """The key without outer spaces, in NFC. Raises Miscast."""
    hint = f"A key is one line of at most {limits.key_chars} characters, such as treaty/date-of-signing."
    if not isinstance(key, str):
        raise Miscast(f"A key must be text, not {type(key).__name__}.", hint=hint, slug="bad_key")
    cleaned = unicodedata.normalize("NFC", key).strip()
    if not cleaned:
        raise Miscast("The key is empty.", hint=hint, slug="bad_key")
    if len(cleaned) > limits.key_chars:
        raise Miscast(
            f"The key has {len(cleaned):,} characters ({cleaned[:40]!r}…); "
            f"at most {limits.key_chars} are allowed.",
            hint=hint + " The rest belongs into the summary or content.",
            slug="bad_key",
        )
    bad = next((sign for sign in cleaned if unicodedata.category(sign) in _NOT_IN_A_LINE), None)
    if bad is not None:
        raise Miscast(
            f"The key {cleaned[:60]!r} holds a line end or control character (U+{ord(bad):04X}).",
            hint=hint,
            slug="bad_key",
        )
    return cleaned


_NOT_IN_A_LINE = ("Cc", "Cs", "Zl", "Zp")  # control, lone surrogate, line and paragraph separator


def sound(text: str, what: str) -> str:
    """Raises Miscast for text that is no text, or holds half of a character."""
    if not isinstance(text, str):
        raise Miscast(f"The {what} must be text, not {type(text).__name__}.", slug="bad_text")
    if match := _SURROGATES.search(text):
        raise Miscast(
            f"The {what} holds half of a character (a lone surrogate) at position {match.start():,}.",
            hint="Write the character whole, or leave it out.",
            slug="bad_text",
        )
    return text


def checked_summary(summary: str, limits: NoteLimits) -> str:
    """The summary as one line. Raises Miscast when it is too long."""
    blank = (
        " " if unicodedata.category(sign) in _NOT_IN_A_LINE else sign for sign in sound(summary, "summary")
    )
    line = " ".join("".join(blank).split())
    if len(line) > limits.summary_chars:
        raise Miscast(
            f"The summary has {len(line):,} characters; at most {limits.summary_chars} are allowed, "
            "since all summaries stand in the window at every turn.",
            hint="Say the point in one line and move the rest into the content.",
            slug="summary_too_long",
        )
    return line


def checked_content(content: str, key: str, limits: NoteLimits) -> str:
    """The content unchanged. Raises Miscast that says how to split it."""
    size = len(sound(content, "content").encode("utf-8"))
    if size > limits.content_bytes:
        parts = -(-size // limits.content_bytes)
        raise Miscast(
            f"The content of {key!r} has {size:,} bytes; at most {limits.content_bytes:,} are allowed.",
            hint=f"Split it into {parts} notes ({key[:80]}/1 to {key[:80]}/{parts}) and link them, "
            "or note what matters and point to the source by evidence.",
            slug="note_too_long",
        )
    return content


def checked_links(links: Sequence[str], limits: NoteLimits) -> tuple[str, ...]:
    """Keys of other notes, without repeats; they need not exist yet. Raises Miscast."""
    if len(links) > limits.links:
        raise Miscast(f"{len(links)} links are too many; at most {limits.links}.", slug="too_many_links")
    return tuple(dict.fromkeys(checked_key(link, limits) for link in links))


def checked_evidence(evidence: Sequence[Evidence], limits: NoteLimits) -> tuple[Evidence, ...]:
    """The evidence unchanged. Raises Miscast."""
    if len(evidence) > limits.evidence:
        raise Miscast(
            f"{len(evidence)} pieces of evidence are too many for one note; at most {limits.evidence}.",
            hint="Split the note by what each part rests on.",
            slug="too_much_evidence",
        )
    for piece in evidence:
        for what in (piece.quote, piece.path, piece.locator, piece.prefix, piece.suffix, piece.detail):
            sound(what, "evidence")
        if len(piece.quote) > limits.quote_chars:
            raise Miscast(
                f"A quote has {len(piece.quote):,} characters; at most {limits.quote_chars:,} are allowed.",
                hint="Quote the sentence that carries the claim; the locator leads to the rest.",
                slug="quote_too_long",
            )
    return tuple(evidence)
