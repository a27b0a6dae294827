"""What somebody who tried the product for the first time stumbled over; numbers are those of that report."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace

SPELLS = re.compile(
    r"(?<!cast )\b(?:searchEngine|readChunk|buildIndex|analyzeText|checkBudget|updateNote|readNote|deleteContext|restoreContext)\b"
)


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
