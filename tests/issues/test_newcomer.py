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
    for stdin, code in (("", 2), ("n\n", 1)):
        said = pensieve("purge", "--older-than", "0", stdin=stdin)
        assert said.code == code and "Interrupted" not in said.err
        assert ("--yes" in said.err) == (code == 2)
