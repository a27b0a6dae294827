"""Read, note, delete: what the product is for (design section 6, StateLM paper section 3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pensieve_mcp.episode import Episode
from pensieve_mcp.ledger.parts import split_parts
from pensieve_mcp.spellbook.casting import CastResult, cast
from pensieve_mcp.spellbook.registry import spellbook
from pensieve_mcp.workspace import Workspace

Cast = Callable[..., CastResult]
Open = Callable[..., Workspace]

HANDLE_LINE = re.compile(r"m(\d+)( · [^·\n]+)* · [\d,]+ tokens · [\d,]+ left\Z")


def test_a_question_is_answered_by_searching_reading_noting_deleting_and_finishing(spell: Cast) -> None:
    found = spell("searchEngine", keyword="how many swarms were caught")
    hit = found.result["retrieved_chunks"][0]
    assert hit["path"] == "docs/guide.md"
    assert hit["locator"].startswith("§ Swarms") or "lines" in hit["locator"]
    assert any("nine swarms" in text for text in hit["highlights"])

    read = spell("readChunk", chunk_id=f"c{hit['chunk_id']}")
    assert "nine swarms caught in May" in read.text
    written = spell(
        "note",
        key="swarms",
        summary="swarms caught last year",
        content="Nine, in May.",
        evidence=[{"chunk_id": hit["chunk_id"], "quote": "nine swarms caught in May"}],
    )
    assert [(e["state"], e["path"]) for e in written.result["evidence"]] == [("ok", "docs/guide.md")]

    before = spell("checkBudget").result["used_tokens"]
    deleted = spell("deleteContext", msg_id=read.message["msg_id"])
    assert deleted.result["freed_tokens"] > 0
    assert deleted.result["physical"] == "no"
    assert deleted.result["still_in_prompt_tokens"] == deleted.result["freed_tokens"]
    assert spell("checkBudget").result["used_tokens"] < before + 400

    answer = spell("finish", answer="Nine.", citations=["swarms", f"c{hit['chunk_id']}"])
    assert [c["state"] for c in answer.result["citations"]] == ["ok", "ok"]


def test_every_result_begins_with_its_handle_line_errors_too(spell: Cast) -> None:
    for result in (
        spell("analyzeText"),
        spell("readChunk", chunk_id=10**9),
        spell("nonsense"),
        spell("finish"),
    ):
        first = result.text.splitlines()[0]
        match = HANDLE_LINE.match(first)
        assert match, first
        assert f"m{match[1]}" == result.message["msg_id"]


def test_call_and_result_each_have_a_number_never_given_twice(spell: Cast) -> None:
    numbers: list[str] = []
    for _ in range(5):
        message = spell("checkBudget").message
        numbers += [message["invoking_msg_id"], message["msg_id"]]
    assert len(set(numbers)) == 10


def test_restoring_gives_back_exactly_what_stood_there(spell: Cast, episode: Episode) -> None:
    read = spell("readChunk", chunk_id=1)
    number = int(read.message["msg_id"][1:])
    spell("deleteContext", msg_id=number)
    assert episode.transcript().entries[episode.transcript().by_number[number]].forgotten
    restored = spell("restoreContext", msg_id=number)
    assert restored.result["restored"][0]["content"] == read.text
    assert not episode.transcript().entries[episode.transcript().by_number[number]].forgotten


def test_a_long_message_is_restored_page_by_page(spell: Cast) -> None:
    read = spell("readChunk", chunk_id=7, neighbours=10, max_bytes=60_000)
    assert len(read.text.encode()) > 20_000
    spell("deleteContext", msg_id=read.message["msg_id"])
    text, offset = "", 0
    for _ in range(20):
        page = spell("restoreContext", msg_id=read.message["msg_id"], offset=offset)
        assert len(page.text.encode()) <= 12_000
        text += page.result["restored"][0]["content"]
        if page.result["next_offset"] is None:
            break
        offset = page.result["next_offset"]
    assert text == read.text


def test_deleting_what_was_never_noted_works_and_says_so(spell: Cast) -> None:
    read = spell("readChunk", chunk_id=1)
    assert "Nothing was noted" in spell("deleteContext", msg_id=read.message["msg_id"]).text
    again = spell("deleteContext", msg_id=read.message["msg_id"])
    assert not again.is_error and again.result["freed_tokens"] == 0
    assert "deleted before" in again.text


def test_what_a_deletion_frees_is_its_own_though_others_speak_meanwhile(
    episode: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sub-agents of Claude Code and opencode share an episode, and speak at once."""
    number = cast(episode, "readChunk", {"chunk_id": "1"}).message["msg_id"]
    alone = cast(episode, "deleteContext", {"msg_id": number}).result["freed_tokens"]
    cast(episode, "restoreContext", {"msg_id": number})
    append = Episode.append

    def interrupted(self: Episode, events: object) -> None:
        append(self, events)  # type: ignore[arg-type]
        monkeypatch.undo()
        cast(self, "readChunk", {"chunk_id": "2"})

    monkeypatch.setattr(Episode, "append", interrupted)
    assert cast(episode, "deleteContext", {"msg_id": number}).result["freed_tokens"] == alone > 0


def test_pinned_messages_are_not_deleted_and_a_range_passes_over_absent_ids(spell: Cast) -> None:
    first = spell("readChunk", chunk_id=1).message["msg_id"]
    second = spell("readChunk", chunk_id=2).message["msg_id"]
    spell("deleteContext", msg_id=first, pin=True)
    refused = spell("deleteContext", msg_id=first)
    assert refused.is_error and refused.slug == "pinned"
    ranged = spell("deleteContext", msg_id=f"{first[1:]}-{int(second[1:]) + 500}")
    assert f"Kept, since pinned: {first}" in ranged.text
    assert second in [d["msg_id"] for d in ranged.result["deleted"]]


def test_a_part_of_a_long_message_can_be_deleted_and_comes_back(spell: Cast, episode: Episode) -> None:
    read = spell("readChunk", chunk_id=2)
    before = episode.transcript().visible_tokens
    part = spell("deleteContext", msg_id=f"{read.message['msg_id']}.2")
    assert part.result["deleted"][0]["msg_id"] == f"{read.message['msg_id']}.2"
    assert 0 < part.result["freed_tokens"] < read.message["tokens"]
    assert episode.transcript().visible_tokens < before + 300
    assert (
        spell("restoreContext", msg_id=f"{read.message['msg_id']}.2").result["restored"][0]["content"]
        == split_parts(read.text)[1]
    )
    missing = spell("deleteContext", msg_id=f"{read.message['msg_id']}.99")
    assert missing.is_error and "parts" in missing.text


def test_scanning_reads_every_chunk_once_in_document_order(spell: Cast, workspace: Workspace) -> None:
    total = workspace.corpus.chunk_count(workspace.default_chunk_set)
    seen = []
    for place in range(total):
        read = spell("readChunk", enable_scan=True)
        assert read.result["reading_progress"] == f"{place + 1}/{total}"
        seen.append(read.result["chunk_id"])
    assert len(set(seen)) == total
    end = spell("readChunk")
    assert end.is_error and end.slug == "no_more_chunks"


def test_scanning_goes_on_after_deleting_and_after_a_restart(
    folder: Path, tmp_path: Path, open_workspace: Open
) -> None:
    state = tmp_path / "state"
    with open_workspace(folder, state) as opened:
        opened.build_now()
        episode = opened.episode("test", thread="t")
        first = cast(episode, "readChunk", {})
        cast(episode, "deleteContext", {"msg_id": first.message["msg_id"]})
    with open_workspace(folder, state) as opened:
        episode = opened.episode("test", thread="t")
        second = cast(episode, "readChunk", {})
        assert second.result["reading_progress"].startswith("2/")
        restored = cast(episode, "restoreContext", {"msg_id": first.message["msg_id"]})
        assert restored.result["restored"][0]["content"] == first.text


def test_history_finds_what_was_deleted(spell: Cast) -> None:
    read = spell(
        "readChunk",
        chunk_id=spell("searchEngine", keyword="sugar syrup frost").result["retrieved_chunks"][0]["chunk_id"],
    )
    spell("deleteContext", msg_id=read.message["msg_id"])
    found = spell("searchEngine", keyword="fourteen kilograms of stores", scope="history")
    assert read.message["msg_id"] in [hit["id"] for hit in found.result["hits"]]
    assert "deleted, restoreContext brings it back" in found.text


def test_a_note_is_found_the_moment_it_is_written_in_chinese_too(spell: Cast) -> None:
    spell("note", key="产量", summary="蜂蜜产量", content="三百公斤")
    found = spell("searchEngine", keyword="蜂蜜", scope="notes")
    assert [hit["id"] for hit in found.result["hits"]] == ["产量"]


def test_evidence_that_stands_nowhere_is_kept_and_marked(spell: Cast) -> None:
    written = spell(
        "note", key="k", summary="s", content="c",
        evidence=[
            {"quote": "eleven swarms"}, {"chunk_id": 424242, "quote": "x"}, {"path": "docs/none.md", "quote": "y"},
        ],
    )  # fmt: skip
    assert not written.is_error
    assert [e["state"] for e in written.result["evidence"]] == ["unsupported"] * 3
    assert "Not found" in written.text


def test_a_quote_without_a_place_is_found_anywhere(spell: Cast) -> None:
    written = spell(
        "note", key="k", summary="s", content="c", evidence=["sugar  syrup before\nthe first frost"]
    )
    (piece,) = written.result["evidence"]
    assert piece["quote"] == "sugar  syrup before\nthe first frost"
    assert (piece["path"], piece["state"], piece["kind"]) == ("docs/guide.md", "ok", "observed")
    assert piece["locator"] and piece["chunk_id"]


def test_the_list_of_notes_rides_on_check_budget(spell: Cast) -> None:
    spell("note", key="swarms", summary="nine in May", content="x")
    assert "swarms: nine in May" in spell("checkBudget").text
    assert "swarms: nine in May" in spell("readNote").text


def test_past_the_threshold_results_advise_calmly_and_reading_is_never_refused_on_tool_traffic(
    folder: Path, tmp_path: Path, open_workspace: Open
) -> None:
    with open_workspace(folder, tmp_path / "state", window_tokens=4_000, reserve_tokens=100) as opened:
        opened.build_now()
        episode = opened.episode("test")
        texts = [cast(episode, "readChunk", {}) for _ in range(6)]
    assert not any(result.is_error for result in texts)
    assert "% of the window is used" not in texts[0].text
    assert "% of the window is used" in texts[-1].text


def test_where_the_whole_conversation_is_seen_reading_past_the_window_is_refused_with_the_heaviest(
    folder: Path, tmp_path: Path, open_workspace: Open
) -> None:
    with open_workspace(folder, tmp_path / "state", window_tokens=3_000, reserve_tokens=100) as opened:
        opened.build_now()
        episode = opened.episode("test", sees="conversation", physical="yes")
        for _ in range(6):
            refused = cast(episode, "readChunk", {})
            if refused.is_error:
                break
        assert refused.slug == "over_budget"
        heavy = re.findall(r"m(\d+) \(", refused.text)
        assert heavy
        deleted = cast(episode, "deleteContext", {"msg_id": ",".join(heavy)})
        assert deleted.result["physical"] == "yes" and deleted.result["still_in_prompt_tokens"] == 0
        assert not cast(episode, "readChunk", {}).is_error


def test_another_chunk_size_gives_other_chunks_and_the_old_ids_keep_their_meaning(spell: Cast) -> None:
    old = spell("readChunk", chunk_id=1).result["retrieved_chunk"][0]["content"]
    built = spell("buildIndex", chunk_size=200)
    assert built.result["total_chunks"] > 20
    small = spell("searchEngine", keyword="mill number 77").result["retrieved_chunks"][0]
    assert small["tokens"] <= 400
    assert spell("readChunk", chunk_id=1).result["retrieved_chunk"][0]["content"] == old


def test_build_index_takes_paths_that_are_new_on_disk_and_refuses_what_is_nowhere(
    spell: Cast, folder: Path
) -> None:
    (folder / "later").mkdir()
    (folder / "later" / "new.txt").write_text("A kingfisher came by.", encoding="utf-8")
    (folder / "other.txt").write_text("A wagtail came by.", encoding="utf-8")
    built = spell("buildIndex", paths=["docs/later"])
    assert not built.is_error
    assert (
        spell("searchEngine", keyword="kingfisher").result["retrieved_chunks"][0]["path"]
        == "docs/later/new.txt"
    )
    assert "wagtail" not in str(
        spell("searchEngine", keyword="wagtail", mode="exact").result["retrieved_chunks"]
    )
    assert spell("buildIndex", paths=["later"]).result["state"] == "ready"
    assert spell("buildIndex", paths=["docs/nowhere"]).slug == "no_such_document"


def test_overlap_must_be_smaller_than_the_chunk(spell: Cast) -> None:
    refused = spell("buildIndex", chunk_size=100, overlap=100)
    assert refused.is_error and "smaller" in refused.text


def test_the_plan_is_kept_in_revisions_and_survives(spell: Cast) -> None:
    spell("plan", goal="count swarms", steps=["search", "read"])
    shown = spell("plan", next="read c1")
    assert shown.result == {
        "goal": "count swarms", "constraints": [], "steps": ["search", "read"], "next": "read c1", "revision": 2,
    }  # fmt: skip


def test_update_note_appends_overwrites_merges_deletes_and_refuses_a_stale_revision(spell: Cast) -> None:
    spell("note", key="a", summary="first", content="one")
    spell("updateNote", key="a", mode="append", new_content="two")
    assert spell("readNote", key="a").result["full_content"] == "one\ntwo"
    conflict = spell("updateNote", key="a", mode="overwrite", new_content="x", expect_revision=1)
    assert conflict.is_error and conflict.slug == "conflict"
    spell("note", key="b", summary="second", content="three")
    merged = spell("updateNote", key="a", mode="merge", keys=["b"])
    assert not merged.is_error
    assert "three" in spell("readNote", key="a").result["full_content"]
    assert spell("readNote", key="b").is_error
    assert spell("updateNote", key="a", mode="delete").result["status"] == "deleted"
    assert spell("readNote", key="a", revision=1).result["full_content"] == "one"


def test_published_payload_names_are_kept(spell: Cast) -> None:
    """Names of the paper's reference implementation, which trained weights expect."""
    assert {"total_tokens"} <= spell("analyzeText").result.keys()
    assert {"index_id", "total_chunks", "first_chunk_id", "last_chunk_id"} <= spell(
        "buildIndex"
    ).result.keys()
    found = spell("searchEngine", keyword="herons").result
    assert {"retrieved_chunks", "keywords", "message"} <= found.keys()
    assert {"chunk_id", "relevance_score", "highlights"} <= found["retrieved_chunks"][0].keys()
    read = spell("readChunk", chunk_id=1).result
    assert {"retrieved_chunk", "chunk_id", "reading_progress"} <= read.keys()
    assert {"chunk_id", "content", "start_pos", "end_pos"} <= read["retrieved_chunk"][0].keys()
    assert {"status", "key"} <= spell("note", key="n", summary="s", content={"a": 1}).result.keys()
    assert {"summary", "full_content"} <= spell("readNote", key="n").result.keys()
    assert json.loads(spell("readNote", key="n").result["full_content"]) == {"a": 1}
    assert {"conv_rounds", "available_tokens", "available_rounds"} <= spell("checkBudget").result.keys()
    assert {"final_answer"} <= spell("finish", answer="x").result.keys()
    assert set(spellbook()) >= {
        "analyzeText", "buildIndex", "readChunk", "searchEngine", "note", "readNote", "updateNote", "checkBudget",
        "deleteContext", "finish",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "slug", "says"),
    [
        ("readchunk", {}, "no_such_spell", "readChunk"),
        ("readChunk", {"chunkid": 1}, "unknown_argument", "chunk_id"),
        ("readChunk", {"chunk_id": "abc"}, "bad_handle", "c48"),
        ("readChunk", {"chunk_id": 999_999}, "no_such_chunk", "searchEngine"),
        ("readChunk", {"chunk_id": 1, "offset": 10**8}, "bad_argument", "characters"),
        ("searchEngine", {}, "missing_argument", "keyword"),
        ("searchEngine", {"keyword": "  "}, "empty_query", "empty"),
        ("searchEngine", {"keyword": "x", "mode": "fuzzy"}, "bad_argument", "hybrid"),
        ("searchEngine", {"keyword": "x", "under": "docs/gide.md"}, "no_such_document", "guide.md"),
        ("searchEngine", {"keyword": "x", "under": "../etc"}, "outside_roots", "docs/"),
        ("searchEngine", {"keyword": "x", "cursor": "abc"}, "bad_cursor", "next_cursor"),
        ("analyzeText", {"path": "docs/picture.txt"}, "document_skipped", "binary"),
        ("note", {"key": "a\nb", "summary": "s", "content": "c"}, None, "line"),
        ("note", {"key": "a", "summary": "s", "content": "c" * 10_000_000}, "arguments_too_long", "split it"),
        ("readNote", {"key": "never"}, "no_such_note", "never"),
        ("updateNote", {"key": "a", "mode": "append"}, "missing_argument", "new_content"),
        ("deleteContext", {"msg_id": "zz"}, "bad_handle", "m12"),
        ("deleteContext", {"msg_id": "m99999"}, "no_such_message", "m99999"),
        ("deleteContext", {"msg_id": "h7f3a"}, "no_such_message", "gateway"),
        ("finish", {"answer": " "}, "missing_argument", "answer"),
    ],
)
def test_a_wrong_call_is_told_what_was_wrong_and_what_to_do(
    spell: Cast, name: str, arguments: dict[str, object], slug: str | None, says: str
) -> None:
    result = spell(name, **arguments)
    assert result.is_error
    assert slug is None or result.slug == slug
    assert says in result.text
    assert len(result.text.encode()) < 2_000


def test_small_models_may_write_numbers_and_lists_as_text(spell: Cast) -> None:
    assert not spell("readChunk", chunk_id="1", neighbours="1", enable_scan="true").is_error
    assert spell("searchEngine", keyword="bees", queries='["swarms", "honey"]').result["keywords"] == [
        "bees",
        "swarms",
        "honey",
    ]
    assert spell("searchEngine", keyword="bees", limit=None).result["retrieved_chunks"]


def test_no_result_is_longer_than_a_host_takes(spell: Cast) -> None:
    for number in range(60):
        spell("note", key=f"key {number} " + "k" * 100, summary="s" * 400, content="c" * 30_000)
    for name, arguments in (
        ("checkBudget", {}), ("readNote", {}), ("readNote", {"key": "key 1 " + "k" * 100}),
        ("searchEngine", {"keyword": "kilometres", "limit": 100}), ("readChunk", {"chunk_id": 7, "neighbours": 10}),
        ("analyzeText", {}), ("searchEngine", {"keyword": "cccc ssss", "scope": "notes", "limit": 100}),
    ):  # fmt: skip
        result = spell(name, **arguments)
        assert len(result.text.encode()) <= 12_000, name


def test_input_schemas_are_flat_and_the_book_is_light() -> None:
    """Gemini and strict OpenAI refuse references and unions; all descriptions together stay under 2,000 tokens."""
    from pensieve_mcp.tokens import count_tokens

    book = spellbook()
    assert len(book) == 12
    listing = ""
    for one in book.values():
        schema = json.dumps(one.input_schema())
        assert "$ref" not in schema and "anyOf" not in schema and '"type": [' not in schema
        assert one.input_schema()["properties"] is not None
        listing += json.dumps(
            {"name": one.name, "description": one.description, "inputSchema": one.input_schema()}
        )
    assert count_tokens(listing) <= 2_000
