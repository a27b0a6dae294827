"""One is one: wherever a number stands before a word, the word follows it."""

from __future__ import annotations

import re
from pathlib import Path

from .conftest import Pensieve

ONE_OF_MANY = re.compile(r"(?<![\w.,:/–§-])1 (?:[a-z-]+ )?(?!was\b|is\b|has\b|does\b|this\b|as\b)[a-z]+s\b")
SHOWN = (
    ("status",),
    ("skipped",),
    ("search", "barrels of oil"),
    ("read", "c1"),
    ("note", "check"),
    ("note", "show", "oil"),
    ("note", "history", "oil"),
    ("note", "list"),
    ("handoff",),
    ("doctor",),
    ("workspace", "list"),
    ("cast", "analyzeText"),
    ("cast", "analyzeText", "path=light.md"),
    ("cast", "buildIndex"),
    ("cast", "checkBudget"),
    ("cast", "readChunk", "chunk_id=1"),
    ("cast", "readNote"),
    (
        "cast",
        "askStateLM",
        "question=How many barrels of oil did the keeper use?",
        "--set",
        "ask_backend=extractive",
    ),
    ("episodes", "list"),
    ("consolidate",),
    ("note", "purge", "--source", "light.md", "--dry-run"),
    ("note", "purge", "--source", "light.md", "--yes"),
    ("index", "docs"),
)


def test_of_one_document_one_note_and_one_skipped_file_nothing_is_said_in_the_plural(
    pensieve: Pensieve, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "light.md").write_text(
        "# The light\n\nThe keeper Maren Holt used 412 barrels of oil.\n", encoding="utf-8"
    )
    (folder / "picture.bin").write_bytes(bytes(range(256)))
    assert pensieve("index", "docs").code == 0
    assert (
        pensieve("note", "write", "oil", "412 barrels.", "--quote", "412 barrels of oil", "--from", "c1").code
        == 0
    )
    wrong = {}
    for words in SHOWN:
        said = pensieve(*words)
        assert "Usage:" not in said.err and "Traceback" not in said.err, (words, said)
        if found := [match[0] for match in ONE_OF_MANY.finditer(said.out + "\n" + said.err)]:
            wrong[words] = found
    assert not wrong
