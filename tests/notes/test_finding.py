"""Notes, history and documents by one search; filters; literals; what was deleted (issue 6, item 5)."""

from __future__ import annotations

import hashlib

from pensieve_mcp.ledger.events import Compacted, Message, Said

from .conftest import LEASE, RENT, Desk

AT_LEASE = {"path": "docs/lease.md", "quote": RENT}


def ids(desk: Desk, keyword: str, scope: str, **more: object) -> list[str]:
    result = desk.cast("searchEngine", keyword=keyword, scope=scope, **more)
    assert not result.is_error, result.text
    return [hit["id"] for hit in result.result["hits"]]


def test_one_call_searches_documents_notes_and_history(desk: Desk) -> None:
    desk.note("rent", "forty-two florins", AT_LEASE)
    said = desk.say("user", "How many florins is the rent?")
    found = desk.cast("searchEngine", keyword="florins rent", scope="all")

    assert found.result["retrieved_chunks"][0]["path"] == "docs/lease.md"
    assert {"rent", said} <= {hit["id"] for hit in found.result["hits"]}
    assert "Notes: " in found.text and "Earlier messages: " in found.text and f"{said} · " in found.text


def test_notes_are_filtered_by_state_status_and_path(desk: Desk) -> None:
    desk.note("rent", "florins", AT_LEASE)
    desk.note("plain", "florins")
    desk.note("about", "florins", applies_to="docs/diary.txt")
    desk.write("lease.md", LEASE.replace("forty-two", "fifty"))
    desk.build()
    desk.read("rent")
    desk.workspace.notebook.set_status("plain", "needs review")

    assert ids(desk, "florins", "notes", under="changed") == ["rent"]
    assert ids(desk, "florins", "notes", under="ok") == []
    assert ids(desk, "florins", "notes", under="needs review") == ["plain"]
    assert ids(desk, "florins", "notes", under="docs/lease.md") == ["rent"]
    assert sorted(ids(desk, "florins", "notes", under="docs")) == ["about", "rent"]


def test_history_is_filtered_by_role_tool_item_and_window(desk: Desk) -> None:
    first = desk.say("user", "the toll of the ferry")
    tool = desk.say("tool", "the toll was raised", "shell")
    desk.episode.append([Compacted("host")])
    later = desk.say("user", "again about the toll")

    assert set(ids(desk, "toll", "history")) >= {first, tool, later}
    assert set(ids(desk, "toll", "history", under="user")) == {first, later}
    assert ids(desk, "toll", "history", under="shell") == [tool]
    assert ids(desk, "toll", "history", under=f"{first}-{tool[1:]}, user") == [first]
    assert set(ids(desk, "toll", "history", under="window 1")) == {first, tool}
    assert later in ids(desk, "toll", "history", under="window 2")
    assert (
        desk.cast("searchEngine", keyword="toll", scope="history", under="nonsense!").slug == "bad_argument"
    )


def test_exact_means_these_very_signs(desk: Desk) -> None:
    desk.note("a", "use foo_bar(1) here")
    desk.note("b", "foo and bar are 1")
    said = desk.say("tool", "call foo_bar(1) now", "shell")

    assert ids(desk, "FOO_BAR(1)", "notes", mode="exact") == ["a"]
    assert said in ids(desk, "foo_bar(1), nothing like it", "history", mode="exact")
    assert ids(desk, "foo_bar(2)", "notes", mode="exact") == []


def test_what_was_deleted_stays_findable_and_comes_back(desk: Desk) -> None:
    chunk = desk.cast("searchEngine", keyword="rent florins").result["retrieved_chunks"][0]["chunk_id"]
    read = desk.cast("readChunk", chunk_id=chunk)
    desk.cast("deleteContext", msg_id=read.message["msg_id"])
    found = desk.cast("searchEngine", keyword="paid on the bridge", scope="history")

    hit = next(h for h in found.result["hits"] if h["id"] == read.message["msg_id"])
    assert "deleted" in hit["summary"]
    back = desk.cast("restoreContext", msg_id=hit["id"])
    assert back.result["restored"][0]["content"] == desk.episode.content(int(hit["id"][1:]))


def test_written_a_moment_ago_is_found_now(desk: Desk) -> None:
    for number in range(20):
        desk.note(f"n{number}", f"the heron number {number} and 条約{number}")
        assert f"n{number}" in ids(desk, f"heron {number}", "notes", limit=50)
        assert f"n{number}" in ids(desk, f"条約{number}", "notes", limit=50)


def test_a_long_note_is_read_by_offsets(desk: Desk) -> None:
    body = "\n".join(f"line {number} of a long note" for number in range(3_000))
    desk.note("long", body)
    read, cursor = "", None
    while True:
        page = desk.cast("readNote", key="long", cursor=cursor).result
        read += page["full_content"]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert read == body


def test_no_query_raises_in_any_scope(desk: Desk) -> None:
    desk.note("k", "c")
    for query in ('"', "AND", "a:b", "*", "(((", "\ud800", "-- ; DROP", ",,,", "NEAR(a b)"):
        for scope in ("notes", "history", "all"):
            for mode in ("hybrid", "exact"):
                result = desk.cast("searchEngine", keyword=query, scope=scope, mode=mode)
                assert result.slug in (None, "", "empty_query", "bad_text"), result.text


def test_a_host_result_keeps_its_handle(desk: Desk) -> None:
    text = "the granary is full"
    digest = hashlib.sha256(text.encode()).digest()
    number = desk.workspace.ledger.reserve(1)
    handle = desk.workspace.ledger.handle_for_host_call("call-1")
    message = Message(number, "tool", "Read", 5, digest, handle=handle, host_call_id="call-1")
    desk.workspace.ledger.append(desk.episode.episode_id, [Said(message)], {digest: text})

    assert ids(desk, "granary", "history", under="Read") == [handle]
    assert ids(desk, "granary", "history", under=handle) == [handle]
