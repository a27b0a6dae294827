"""What a second newcomer stumbled over: reading with neighbours, phrases, scores of other scripts, and wordings."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace


def opened(documents: Path) -> Workspace:
    return Workspace.open([documents], environment=os.environ, builder="inline")


# -- neighbours and the length limit ------------------------------------------------------------------------------


@pytest.fixture
def long(pensieve, documents) -> Path:
    """A document of many full chunks."""
    words = " ".join(f"word{number}" for number in range(12_000))
    (documents / "long.txt").write_text(words, encoding="utf-8")
    assert pensieve("index", documents).code == 0
    return documents


def read(documents: Path, middle: int = 20, **arguments: object):
    with opened(documents) as workspace:
        found = workspace.corpus.document("documents/long.txt")
        first = workspace.corpus.chunk_containing(workspace.default_chunk_set, found.document_id, 0)
        chunk = workspace.corpus.chunk_at(workspace.default_chunk_set, first.position + middle)
        answer = cast(workspace.episode("test"), "readChunk", {"chunk_id": chunk.chunk_id, **arguments})
        return chunk.chunk_id, workspace.corpus.chunk_text(chunk), answer


@pytest.mark.parametrize("neighbours", [1, 2, 3, 10])
def test_the_chunk_that_was_asked_for_is_whole_and_in_the_middle_of_what_fits(long, neighbours):
    wanted, text, answer = read(long, neighbours=neighbours)
    parts = {part["chunk_id"]: part["content"] for part in answer.result["retrieved_chunk"]}
    assert parts[wanted] == text and text in answer.text
    ids = list(parts)
    assert ids == list(range(ids[0], ids[-1] + 1)), "no gap"
    assert abs((wanted - ids[0]) - (ids[-1] - wanted)) <= 1, "the farthest are left out, on both sides"
    assert len(answer.text.encode()) <= 12_000
    head, *lines = answer.text.split("\n")
    assert f"c{ids[0]}–c{ids[-1]} ·" in head
    if ids[0] > wanted - neighbours:
        assert lines[0].startswith(f"[left out for length: c{wanted - neighbours}")
    if ids[-1] < wanted + neighbours:
        assert lines[-1].startswith(f"[left out for length: c{ids[-1] + 1}")
    assert (neighbours > 2) == (len(ids) < 2 * neighbours + 1)


def test_the_head_tells_the_place_of_all_that_is_shown(long):
    wanted, _, answer = read(long, neighbours=1, max_bytes=40_000)
    head = answer.text.split("\n")[0]
    place = re.search(r"(\d+)–(\d+)/\d+", head)
    assert place and int(place[2]) - int(place[1]) == 2, head
    assert answer.result["chunk_id"] == wanted and "–" not in answer.result["reading_progress"]


def test_a_chunk_that_does_not_fit_alone_is_cut_and_goes_on(long):
    wanted, text, answer = read(long, neighbours=2, max_bytes=1_000)
    (part,) = answer.result["retrieved_chunk"]
    assert part["chunk_id"] == wanted and text.startswith(part["content"]) and len(part["content"]) > 100
    assert answer.result["next_offset"] == len(part["content"])
    assert f"c{wanted - 2}–c{wanted - 1}]" in answer.text and f"c{wanted + 1}–c{wanted + 2}]" in answer.text
    assert len(answer.text.encode()) <= 1_000
    _, _, rest = read(long, neighbours=2, max_bytes=12_000, offset=answer.result["next_offset"])
    got = next(one for one in rest.result["retrieved_chunk"] if one["chunk_id"] == wanted)
    assert part["content"] + got["content"] == text


def test_only_what_is_shown_must_fit_the_window(long):
    """Where the whole conversation is seen, neighbours that are left out for length were counted, too."""
    small = {"window_tokens": 14_000, "reserve_tokens": 500}
    with Workspace.open([long], environment=os.environ, builder="inline", arguments=small) as workspace:
        found = workspace.corpus.document("documents/long.txt")
        first = workspace.corpus.chunk_containing(workspace.default_chunk_set, found.document_id, 0)
        chunk = workspace.corpus.chunk_at(workspace.default_chunk_set, first.position + 20)
        around = workspace.corpus.neighbours(chunk.chunk_id, 10)
        episode = workspace.episode("test", sees="conversation", physical="yes")
        assert sum(one.tokens for one in around) > episode.budget().left
        answer = cast(episode, "readChunk", {"chunk_id": chunk.chunk_id, "neighbours": 10})
        assert not answer.is_error and len(answer.result["retrieved_chunk"]) > 2, answer.text


def test_at_the_edge_of_a_document_the_other_side_is_read(long):
    wanted, _, answer = read(long, middle=1, neighbours=10)
    ids = [part["chunk_id"] for part in answer.result["retrieved_chunk"]]
    assert ids[0] == wanted - 1 and len(ids) > 2


# -- phrases ------------------------------------------------------------------------------------------------------


@pytest.fixture
def phrases(pensieve, tmp_path) -> Path:
    docs = tmp_path / "machines"
    docs.mkdir()
    (docs / "beam.txt").write_text("The hollow beam is bolted to the frame of the crane.")
    (docs / "ring.txt").write_text("Grease the seal ring every year, or sooner in wet places.")
    for number in range(12):
        text = f"In hall {number} a beam and a ring lie, hollow both; the seal swims. Ring and seal, beam or hollow."
        (docs / f"hall{number}.txt").write_text(text)
    assert pensieve("index", docs).code == 0
    return docs


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_phrases_that_stand_apart_are_told_so_and_come_first(pensieve, phrases, mode):
    said = pensieve("search", '"hollow beam" "seal ring"', "--mode", mode, "--json").data
    assert {hit["path"].split("/")[1] for hit in said["hits"][:2]} == {"beam.txt", "ring.txt"}
    assert "“hollow beam”, “seal ring” together" in said["message"] and "as it stands" not in said["message"]
    scores = [hit["score"] for hit in said["hits"]]
    assert scores == sorted(scores, reverse=True) and len(scores) > 5


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_only_a_phrase_that_stands_nowhere_is_told_to(pensieve, phrases, mode):
    said = pensieve("search", '"hollow beam" "ring seal"', "--mode", mode, "--json").data
    assert said["hits"][0]["path"].endswith("beam.txt")
    assert "the phrase “ring seal” as it stands" in said["message"] and "“hollow beam”" not in said["message"]
    both = pensieve("search", '"beam hollow" "ring seal"', "--mode", mode, "--json").data
    assert "the phrases “beam hollow”, “ring seal” as they stand; their words" in both["message"]


def test_the_most_of_three_phrases_come_first(pensieve, phrases):
    (phrases / "two.txt").write_text(
        "The hollow beam rests, far from the water, on its own seal ring and a stone."
    )
    (phrases / "oil.txt").write_text("Fill the oil pan to the mark.")
    assert pensieve("index", phrases).code == 0
    said = pensieve("search", '"hollow beam" "seal ring" "oil pan"', "--json").data
    found = [hit["path"].split("/")[1] for hit in said["hits"][:4]]
    assert found[0] == "two.txt" and set(found[1:]) == {"beam.txt", "ring.txt", "oil.txt"}


# -- ids that are not in use --------------------------------------------------------------------------------------


def test_a_missing_chunk_tells_how_many_ids_are_in_use(pensieve, documents):
    assert pensieve("index", documents).code == 0
    chunks = pensieve("status", "--json").data["chunks"]
    assert f"There is no chunk c999; this workspace has c1 to c{chunks}." in pensieve("read", "c999").err
    with opened(documents) as workspace:
        built = cast(workspace.episode("test"), "buildIndex", {}).text
        assert f", c1 to c{chunks}." in built

    for number in range(3):
        (documents / "lease.md").write_text(f"Draft {number} of a lease.")
        assert pensieve("index", documents).code == 0
    now = pensieve("status", "--json").data["chunks"]
    with opened(documents) as workspace:
        last = workspace.corpus.ids.highest()
        built = cast(workspace.episode("test"), "buildIndex", {}).text
        assert f"to c{last}, not all in between." in built
    assert last > now
    said = pensieve("read", "c999")
    assert f"There is no chunk c999; of the ids up to c{last}, {now} are in use." in said.err


# -- a budget that adds up ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--set", "reserve_tokens=512"), ("--set", "reserve_tokens=0")])
def test_the_figures_of_the_budget_add_up(pensieve, documents, options):
    assert pensieve("index", documents).code == 0
    said = pensieve(*options, "cast", "checkBudget").out
    told = re.search(
        r"([\d,]+) of ([\d,]+) tokens in mind, (?:([\d,]+) kept free for answers, )?([\d,]+) left", said
    )
    used, window, kept, left = (int((figure or "0").replace(",", "")) for figure in told.groups())
    assert used + kept + left == window == 32_000, said


# -- paths outside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc", "/nosuch/place.txt", "/documents/lease.md"])
def test_a_path_outside_the_folders_is_told_as_one(pensieve, documents, path):
    assert pensieve("index", documents).code == 0
    for command in (
        ("search", "rent", "--under", path),
        ("read", path),
        ("cast", "analyzeText", f"path={path}"),
    ):
        said = pensieve(*command)
        told = said.out + said.err
        assert said.code == 1 and f"{path} lies outside the folders of this workspace" in told, told
        assert "Paths begin with documents/" in told and "//" not in told


def test_an_absolute_path_may_lead_through_a_link(pensieve, documents, tmp_path):
    assert pensieve("index", documents).code == 0
    (tmp_path / "link").symlink_to(documents, target_is_directory=True)
    with opened(documents) as workspace:
        assert workspace.prefix(str(tmp_path / "link" / "lease.md")) == ("documents/lease.md",)
        assert workspace.prefix(str(tmp_path / "link")) == ("documents",)


@pytest.mark.parametrize("path", ["/\0", "/\ud800", "/" + "x" * 5_000, "/../../etc", "/" + "a/" * 3_000])
def test_odd_absolute_paths_are_refused_in_words(pensieve, documents, path):
    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        for spell, name, value in (("searchEngine", "under", path), ("buildIndex", "paths", [path])):
            given = {"keyword": "rent"} if spell == "searchEngine" else {}
            answer = cast(workspace.episode("test"), spell, {**given, name: value})
            assert (answer.is_error and "There is no" in answer.text) or "outside" in answer.text, answer.text


def test_a_folder_may_be_indexed_by_its_path_from_the_top(pensieve, documents):
    (documents / "more").mkdir()
    (documents / "more" / "rent.txt").write_text("The rent of the barn is one florin.")
    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        assert workspace.places("/more") == ("documents/more",)


@pytest.mark.parametrize("path", ["/" + "x" * 5_000, "x" * 5_000, "~nobodyhere/x"])
def test_a_path_that_cannot_be_is_refused_at_the_shell(pensieve, documents, path):
    assert pensieve("index", documents).code == 0
    for command in (("search", "rent", "--under", path), ("read", path)):
        said = pensieve(*command)
        assert said.code == 1 and "fault of ours" not in said.err, said.err
