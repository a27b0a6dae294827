"""What somebody who tried the product for the first time stumbled over; numbers are those of that report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace

_NAMES = "searchEngine readChunk buildIndex analyzeText checkBudget updateNote readNote deleteContext restoreContext"
SPELLS = re.compile(rf"(?<!cast )\b(?:{_NAMES.replace(' ', '|')})\b")


def opened(documents: Path) -> Workspace:
    return Workspace.open([documents], environment=os.environ, builder="inline")


# -- 2 and 3: an index that was interrupted ---------------------------------------------------------------------


def test_an_interrupted_rebuild_is_told_as_what_it_is(pensieve, documents, monkeypatch):
    from pensieve_mcp import building

    assert pensieve("index", documents).code == 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(building._Build, "_take", interrupt)
        assert pensieve("workspace", "rebuild").code == 130

    searched = pensieve("search", "rent of the mill")
    assert "No readable document" not in searched.err
    assert "interrupted" in searched.err and "run pensieve index" in searched.err
    status = pensieve("status")
    assert ".." not in status.out + status.err
    assert "interrupted" in status.out and "pensieve index" in status.out
    with opened(documents) as workspace:
        told = cast(workspace.episode("test"), "searchEngine", {"keyword": "rent"}).text
        assert "interrupted" in told and "call buildIndex" in told and "other words" not in told
    assert pensieve("index").code == 0
    assert pensieve("search", "rent of the mill").out


# -- 4: nothing to search yet -----------------------------------------------------------------------------------


def test_a_search_before_anything_is_published_says_so(pensieve, documents):
    """While a build runs that has published nothing: no invitation to try other words."""
    with opened(documents) as workspace:
        lease = _building(workspace)
        told = cast(workspace.episode("test"), "searchEngine", {"keyword": "rent"}).text
        read = cast(workspace.episode("test"), "readChunk", {}).text
        shown = pensieve("search", "rent")
        lease.give_back()
    for text in (told, read, shown.err):
        assert "no text yet" in text and "try again in a moment" in text
        assert "Try other words" not in text and "can be searched" not in text
    assert not SPELLS.search(shown.err)


def _building(workspace: Workspace):
    from pensieve_mcp.corpus.intake import Intake
    from pensieve_mcp.corpus.lease import Lease
    from pensieve_mcp.corpus.types import BuildProgress

    lease = Lease.take(workspace.corpus.connections)
    assert lease is not None
    Intake(workspace.corpus, lease).tell(BuildProgress("building", 160, 245))
    return lease


def test_only_what_is_published_counts_as_searchable(pensieve, documents):
    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        lease = _building(workspace)
        told = cast(workspace.episode("test"), "searchEngine", {"keyword": "rent"}).text
        lease.give_back()
    assert "3 documents can be searched" in told and "160" not in told.split("can be searched")[0]


def test_hits_of_an_interrupted_index_are_not_taken_for_all(pensieve, documents):
    from pensieve_mcp.corpus.intake import Intake
    from pensieve_mcp.corpus.lease import Lease
    from pensieve_mcp.corpus.types import BuildProgress

    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        lease = Lease.take(workspace.corpus.connections)
        assert lease is not None
        Intake(workspace.corpus, lease).tell(BuildProgress("building", 3, 245))
        lease.give_back()
        told = cast(workspace.episode("test"), "searchEngine", {"keyword": "rent"}).text
    for text in (told, pensieve("search", "rent").err):
        assert "242 of 245 files are left" in text


# -- 17: hints for a model do not reach a person ----------------------------------------------------------------


def test_hints_name_commands_at_the_shell_and_spells_to_a_model(pensieve, documents):
    assert pensieve("index", documents).code == 0
    for words in (("read", "c999"), ("read", "nosuch.md"), ("note", "show", "nosuch"), ("read", "c0x")):
        said = pensieve(*words)
        assert said.code == 1 and not SPELLS.search(said.err), said.err
    assert "pensieve search" in pensieve("read", "c999").err
    assert "searchEngine" in pensieve("cast", "readChunk", "chunk_id=999").out


def test_every_spell_has_its_command():
    from pensieve_mcp.cli.translating import COMMANDS, for_person
    from pensieve_mcp.spellbook.registry import ORDER

    assert {*COMMANDS} == {name for name in ORDER if name != name.lower()}
    for name in COMMANDS:
        assert not SPELLS.search(for_person(f"Call {name} to go on, or {name}(x=1)."))
    assert for_person("Call buildIndex to go on.") == "Run pensieve index to go on."
    assert for_person("call searchEngine") == "run pensieve search"


# -- 5: why a file is not there ---------------------------------------------------------------------------------


def test_explain_knows_what_was_skipped_at_reading(pensieve, documents):
    (documents / "nothing.md").write_text("")
    assert pensieve("index", documents).code == 0
    (documents / "new.md").write_text("Just written.")

    for name, reason in (("picture.bin", "binary"), ("nothing.md", "empty")):
        told = pensieve("explain", documents / name)
        assert f"out ({reason})" in told.out and "no rule hides it" in told.out
        data = pensieve("explain", documents / name, "--json").data
        assert (data["taken"], data["reason"]) == (False, reason)
    assert "in:" in pensieve("explain", documents / "lease.md").out
    assert "not read yet" in pensieve("explain", documents / "new.md").out


# -- 6: the server over a folder that is not there --------------------------------------------------------------


def test_a_server_without_its_folder_says_so_to_whoever_started_it(home, tmp_path):
    for arguments in ([str(tmp_path / "nosuch")], []):
        done = subprocess.run(
            [sys.executable, "-m", "pensieve_mcp.server", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
        )
        assert done.stdout == ""
        wanted = f"There is no folder or file {tmp_path / 'nosuch'}." if arguments else "given no folder"
        assert wanted in done.stderr and "goes on" in done.stderr


# -- 7: workspaces that nobody asked for ------------------------------------------------------------------------


def test_looking_at_a_folder_makes_no_workspace(pensieve, documents, home, tmp_path):
    said = pensieve("--folder", documents, "search", "rent")
    assert said.code == 1 and "not indexed yet" in said.err and f"pensieve index {documents}" in said.err
    assert pensieve("status", "--state", tmp_path / "state", "--folder", documents).code == 1
    assert pensieve("workspace", "list", "--json").data == [] and not (tmp_path / "state").exists()


def test_a_folder_inside_a_workspace_is_searched_in_that_workspace(pensieve, documents):
    (documents / "more").mkdir()
    (documents / "more" / "rent.txt").write_text("The rent of the barn is one florin.")
    assert pensieve("index", documents).code == 0

    said = pensieve("--folder", documents / "more", "search", "rent", "--json")
    assert [hit["path"] for hit in said.data["hits"]] == ["documents/more/rent.txt"]
    assert len(pensieve("workspace", "list", "--json").data) == 1


def test_a_workspace_inside_another_is_noted(pensieve, documents):
    (documents / "more").mkdir()
    (documents / "more" / "rent.txt").write_text("The rent of the barn is one florin.")
    assert pensieve("index", documents).code == 0

    said = pensieve("index", documents / "more")
    assert said.code == 0 and "lies inside the workspace" in said.err and "--under" in said.err
    assert "lies inside" not in pensieve("index", documents / "more").err, "once is enough"


# -- 13: the trial's ids ----------------------------------------------------------------------------------------


def test_a_trial_over_a_folder_prints_no_ids_that_mean_another_text_later(pensieve, documents):
    said = pensieve("try", documents, "-q", "How is notice given?")
    assert said.code == 0
    assert not re.search(r"\bc\d+\b", said.out), said.out
    assert "documents/lease.md" in said.out
    assert "`pensieve skipped` lists them" not in said.err


# -- 14, 16: wrong usage says what would be right ----------------------------------------------------------------


def test_an_unknown_reason_is_wrong_usage(pensieve, documents):
    assert pensieve("index", documents).code == 0
    said = pensieve("skipped", "--reason", "nonsense")
    assert said.code == 2 and "binary" in said.err and "no_text" in said.err
    assert "picture.bin" in pensieve("skipped", "--reason", "binary").out


def test_a_question_nobody_can_answer_names_the_option(pensieve, documents):
    assert pensieve("index", documents).code == 0
    assert pensieve("cast", "checkBudget").code == 0
    for stdin, code in (("", 2), ("n\n", 1)):
        said = pensieve("purge", "--older-than", "0", stdin=stdin)
        assert said.code == code and "Interrupted" not in said.err
        assert ("--yes" in said.err) == (code == 2)


# -- 8: a file of somebody else's is not written over ------------------------------------------------------------


def test_an_export_writes_over_no_file_unasked(pensieve, documents, tmp_path):
    assert pensieve("index", documents).code == 0
    assert pensieve("note", "write", "rent", "Forty-two florins.").code == 0
    mine = tmp_path / "mine.json"
    mine.write_text("precious")

    said = pensieve("note", "export", mine)
    assert said.code == 1 and "--overwrite" in said.err and mine.read_text() == "precious"
    assert pensieve("note", "export", mine, "--overwrite").code == 0
    assert "florins" in mine.read_text()
    handle = _begin(pensieve)
    mine.write_text("precious")
    said = pensieve("episodes", "export", handle, mine)
    assert said.code == 1 and "--overwrite" in said.err and mine.read_text() == "precious"


def _begin(pensieve, *call: str) -> str:
    said = pensieve("cast", *(call or ("searchEngine", "keyword=rent of the mill")))
    return re.search(r"--episode (\w+)", said.err)[1]


# -- 15: the least size of an answer still says something ---------------------------------------------------------


def test_the_least_answer_holds_text_and_the_place_to_go_on_from(pensieve, documents):
    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        episode = workspace.episode("test")
        chunk = workspace.corpus.chunk_at(workspace.default_chunk_set, 0)
        whole, offset, text = workspace.corpus.chunk_text(chunk), 0, ""
        while offset is not None:
            answer = cast(
                episode, "readChunk", {"chunk_id": chunk.chunk_id, "max_bytes": 500, "offset": offset}
            )
            assert not answer.is_error and len(answer.text.encode()) <= 500
            text += answer.result["retrieved_chunk"][0]["content"]
            offset = answer.result["next_offset"]
        assert text == whole


# -- 18: a list of conversations that can be told apart ------------------------------------------------------------


def test_conversations_have_titles_and_say_that_they_were_answered(pensieve, documents):
    assert pensieve("index", documents).code == 0
    handle = _begin(pensieve)
    listed = pensieve("episodes", "list")
    assert "rent of the mill" in listed.out and "\topen\t" in listed.out
    assert "last used" in listed.err, "the names of the columns, beside the data"
    pensieve("cast", "finish", "answer=Forty-two florins", "--episode", handle)
    assert "\tanswered\t" in pensieve("episodes", "list").out
    goal = _begin(pensieve, "plan", "goal=Compare the leases")
    assert f"{goal}\t" in (out := pensieve("episodes", "list").out) and "Compare the leases" in out
    assert {one["title"] for one in pensieve("episodes", "list", "--json").data} == {
        "rent of the mill",
        "Compare the leases",
    }


def test_a_call_that_cannot_be_made_begins_no_episode(pensieve, documents):
    assert pensieve("index", documents).code == 0
    for call in (
        ["nosuch"],
        ["readChunk", "nosuch=1"],
        ["searchEngine"],
        ["searchEngine", "keyword=a", "limit=oops"],
    ):
        said = pensieve("cast", *call)
        assert said.code == 1 and said.out and "Episode" not in said.err
    assert pensieve("episodes", "list", "--json").data == []


# -- 19: restoring twice -------------------------------------------------------------------------------------------


def test_a_message_is_restored_and_counted_once(pensieve, documents):
    """Where the host's prompt is out of reach the text is printed anew; in the record it stands once, in its old
    place (decision 0010)."""
    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        episode = workspace.episode("test")
        read = cast(episode, "readChunk", {"chunk_id": 1})
        full = episode.budget().used
        cast(episode, "deleteContext", {"msg_id": read.message["msg_id"]})
        restored = cast(episode, "restoreContext", {"msg_id": read.message["msg_id"]})
        assert restored.result["restored"][0]["content"] == read.text
        used = episode.budget().used
        assert used - full < read.message["tokens"], "the copy does not count beside what it copies"

        again = cast(episode, "restoreContext", {"msg_id": read.message["msg_id"]})
        assert "is in mind already" in again.text and read.text not in again.text
        assert again.result["status"] == "not_deleted" and again.result["restored"] == []
        assert episode.budget().used - used < 100


def test_what_did_not_fit_is_not_counted_as_restored(pensieve, documents):
    (documents / "long.txt").write_text(" ".join(f"word{n}" for n in range(12_000)))
    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        episode = workspace.episode("test")
        ids = workspace.corpus.chunk_range(workspace.default_chunk_set)[1:]
        names = [
            cast(episode, "readChunk", {"chunk_id": i, "max_bytes": 50_000}).message["msg_id"]
            for i in range(ids[0], ids[1] + 1)
        ]
        cast(episode, "deleteContext", {"msg_id": ",".join(names)})
        first = cast(episode, "restoreContext", {"msg_id": ",".join(names)})
        shown = {line["msg_id"] for line in first.result["restored"]}
        assert len(shown) < len(names)
        rest = next(name for name in names if name not in shown)
        assert cast(episode, "restoreContext", {"msg_id": rest}).result["restored"][0]["content"]


# -- 20, 22, 23, 24: words -----------------------------------------------------------------------------------------


def test_doctor_shows_what_was_changed_and_all_when_asked(pensieve, documents):
    assert pensieve("index", documents).code == 0
    said = pensieve("--set", "window_tokens=9000", "doctor")
    assert "window_tokens" in said.out and "rescan_seconds" not in said.out and "--all" in said.out
    assert "rescan_seconds" in pensieve("doctor", "--all").out
    line = next(line for line in said.out.splitlines() if "  index: " in line)
    assert "passages" in line and "_" not in line and "generation" not in line
    status = pensieve("status").out
    assert "upgraded" not in status and "meaning" in status


def test_readers_that_changed_are_no_trouble_once_all_is_read(pensieve, documents, monkeypatch):
    """An extra was installed: the failures it can mend were tried again, so nothing is left to do."""
    from pensieve_mcp.corpus.extract import registry

    assert pensieve("index", documents).code == 0
    before = registry.extractor_fingerprint()
    monkeypatch.setattr(registry, "extractor_fingerprint", lambda: before + ";newreader/1")
    said = pensieve("index")
    assert said.code == 0 and "stale" not in (said.out + said.err).lower()
    assert "stale" not in pensieve("status").err


def test_wrong_calls_are_worded(pensieve, documents):
    assert pensieve("index", documents).code == 0
    with opened(documents) as workspace:
        episode = workspace.episode("test")

        def told(spell, **arguments):
            return cast(episode, spell, arguments).text

        assert "Did you mean" not in told("nosuch") and "There are analyzeText" in told("nosuch")
        assert "Did you mean searchEngine" in told("search_engine")
        assert "limit is 'oops', but should be a whole number." in told(
            "searchEngine", keyword="a", limit="oops"
        )
        assert "limit is 1000, but should be at most 100." in told("searchEngine", keyword="a", limit=1000)
        assert "limit is 0, but should be at least 1." in told("searchEngine", keyword="a", limit=0)
        assert "true or false" in told("readChunk", chunk_id=1, enable_scan="perhaps")
        assert "should be text" in told("searchEngine", keyword=["a"])
        assert "should be hybrid, lexical, dense or exact." in told("searchEngine", keyword="a", mode="odd")
        assert "unable to parse" not in told("readChunk", neighbours="x", chunk_id=1)
    said = pensieve("--set", "window_token=1", "index", documents)
    assert "--set window_token" in said.err and "argument sets" not in said.err


def test_one_is_not_many(pensieve, documents):
    assert pensieve("index", documents).code == 0
    _begin(pensieve)
    assert pensieve("purge", "--older-than", "0", "--yes").out.startswith("1 episode, 2 messages removed")
    assert pensieve("note", "write", "rent", "florins").code == 0
    assert "1 note." in pensieve("search", "--scope", "notes", "florins").err


def test_words_that_no_passage_holds_are_said_first(pensieve, documents):
    assert pensieve("index", documents).code == 0
    said = pensieve("search", "xqzvbn wwkkqq")
    workspace, first = said.err.splitlines()[:2]
    assert workspace.startswith("Workspace ") and first.startswith("No passage holds"), said.err
    with opened(documents) as workspace:
        told = cast(workspace.episode("test"), "searchEngine", {"keyword": "xqzvbn wwkkqq"}).text
    assert "No passage holds" in told.split("\n")[1]


def test_importing_a_folder_without_notes_says_so(pensieve, documents, tmp_path):
    assert pensieve("index", documents).code == 0
    (tmp_path / "nothing").mkdir()
    said = pensieve("note", "import", tmp_path / "nothing")
    assert said.code == 1 and "no note" in said.err


def test_a_table_of_what_was_skipped_tells_each_reason_once(pensieve, documents):
    (documents / "other.bin").write_bytes(bytes(range(256)) * 8)
    assert pensieve("index", documents).code == 0
    assert "binary 2" in pensieve("skipped").err


def test_a_search_as_json_says_each_thing_once(pensieve, documents):
    assert pensieve("index", documents).code == 0
    for hit in pensieve("search", "rent", "--json").data["hits"]:
        assert "head" not in hit


def test_a_title_that_is_a_picture_is_what_the_picture_says():
    from pensieve_mcp.corpus.extract.text_outline import Markdown

    def headings(text):
        return [heading for _, heading in Markdown().headings(text)]

    assert headings("# ![Velsay light](logo.png)\n") == [("Velsay light",)]
    assert headings("# [![build](https://x/b.svg)](https://x) Tide tables\n") == [("build Tide tables",)]
    assert headings('# <img alt="The mill" src="m.png">\n') == [("The mill",)]
    assert headings("# Uses of List<String> and [links](https://x)\n") == [
        ("Uses of List<String> and links",)
    ]
