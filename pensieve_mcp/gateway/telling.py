"""What the gateway tells people: a line for a request's decision, and the summary at the end."""

from __future__ import annotations

from collections.abc import Iterator

from pensieve_mcp.gateway.rewrite import Report
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.gateway.totals import Totals

LOOKS = ("searchEngine", "analyzeText", "readChunk", "readNote", "checkBudget")


def explained(path: str, report: Report, policy: Policy) -> Iterator[str]:
    """What was done to one request and why, for --explain."""
    state = f"{report.bytes_in:,} bytes came, {report.bytes_out:,} went on"
    yield f"{path}: {state}; {report.stubbed} forgotten, {report.saved_tokens:,} tokens not sent."
    if report.decisions:
        last = report.decisions[-1]
        verb = (
            "waits"
            if not last.taken
            else "taken out"
            if last.taken == last.waiting
            else f"{last.taken} of them taken out"
        )
        yield (
            f"  {policy.name}, request {last.request}: {last.waiting} deleted, {last.doomed_tokens:,} tokens: {verb}; "
            f"{last.why}."
        )
    for note in report.notes:
        yield f"  {note}"


def summary(totals: Totals) -> Iterator[str]:
    """What was read, forgotten and saved."""
    yield from _failures(totals)
    if not totals.requests:
        if totals.is_silent:
            yield "Nothing passed the gateway."
        return
    read = sum(len(handles) for tool, handles in totals.read.items() if tool == "readChunk")
    host = sum(
        len(handles) for tool, handles in totals.read.items() if any(h.startswith("h") for h in handles)
    )
    yield (
        f"{_count(totals.requests, 'request')}; {_count(read, 'chunk')} read, {_count(host, 'result')} of the host "
        f"with a handle; {_count(len(totals.forgotten), 'message')} forgotten."
    )
    sent = totals.prompt if totals.told else totals.bytes_out // 4
    share = (
        f", {100 * totals.saved_tokens // (sent + totals.saved_tokens)} % of what would have been"
        if sent
        else ""
    )
    yield f"About {totals.saved_tokens:,} tokens were not sent{share}."
    if totals.told:
        yield (
            f"By the provider's count: {totals.prompt:,} tokens in, {totals.cached:,} of them from its cache, "
            f"{totals.answer:,} out; largest prompt {totals.peak:,}."
        )
    for trouble in totals.troubles:
        yield f"The ledger was not written: {trouble}"


def _failures(totals: Totals) -> Iterator[str]:
    if totals.given_up:
        yield f"Requests that ended before the model's API answered: {totals.given_up:,}."
    if totals.unreached:
        yield (
            f"Requests that did not reach the model's API: {totals.unreached:,}. Is the network there, and the address "
            "right (--upstream)?"
        )
    if totals.refused:
        yield (
            f"Requests that the model's API answered with an error, which the host shows: {totals.refused:,}. Is it "
            "logged in, is its limit reached?"
        )


def _count(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"
