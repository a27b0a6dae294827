"""Notes as files and back: exact, safe names, conflicts told, bad files cost themselves."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.errors import Miscast, WorkspaceError
from pensieve_mcp.notebook.exchange import (
    export_json,
    export_markdown,
    file_name,
    from_markdown,
    import_json,
    import_markdown,
    to_markdown,
    write_file,
)
from pensieve_mcp.notebook.types import Evidence, Note

from .conftest import Memory, open_memory

text = st.text(max_size=60)
line = text.map(lambda one: " ".join(one.split()))
keys = line.filter(bool)
times = st.floats(min_value=0, max_value=4_000_000_000)
evidence = st.builds(
    Evidence,
    quote=text,
    path=text,
    locator=text,
    chunk_id=st.none() | st.integers(0, 10**9),
    message=st.none() | st.integers(1, 10**9),
    document_digest=st.binary(max_size=32),
    span=st.none() | st.tuples(st.integers(0, 99), st.integers(99, 999)),
    prefix=text,
    suffix=text,
    state=st.sampled_from(["unchecked", "ok", "unsupported", "moved", "changed", "gone", "revoked"]),
    detail=text,
    kind=st.sampled_from(["observed", "user", "tool", "guess"]),
    verified=st.none() | times,
    noted_path=text,
    noted_locator=text,
)
notes = st.builds(
    Note,
    key=keys,
    summary=line,
    content=st.text(max_size=300)
    | st.sampled_from(["", "\n", "---\n", "\n\n---\n", "\r\nx\r\n", "\ufeff", "- a\n"]),
    revision=st.integers(1, 10**6),
    created=times,
    updated=times,
    evidence=st.lists(evidence, max_size=3).map(tuple),
    applies_to=line,
    links=st.lists(keys, max_size=3, unique=True).map(tuple),
    author=line,
    kind=st.sampled_from(["", "observed", "user", "tool", "guess"]),
    status=st.sampled_from(["active", "superseded", "revoked", "needs review"]),
    reason=text,
    valid=text,
    valid_basis=text,
    observed=st.none() | times,
    contests=st.none() | st.integers(1, 10**6),
    merged_from=st.lists(keys, max_size=3, unique=True).map(tuple),
)


@given(notes)
def test_a_note_written_as_markdown_reads_back_equal(note: Note) -> None:
    assert from_markdown(to_markdown(note)) == note


@given(st.lists(st.text(min_size=1, max_size=250), min_size=2, max_size=2, unique=True))
def test_file_names_are_safe_everywhere_and_never_shared(pair: list[str]) -> None:
    one, two = (file_name(key) for key in pair)
    assert one.lower() != two.lower()
    for name in (one, two):
        assert name.isascii() and len(name) < 100 and name == name.lower()
        assert not set(name) & set('/\\:*?"<>| \x00') and not name.startswith((".", "-"))


@pytest.mark.parametrize("key", ["con", "NUL", "..", "a/b", "../../x", "x.md", "CON.md", "-rf", "~", " "])
def test_dangerous_names_are_made_harmless(key: str, tmp_path: Path) -> None:
    name = file_name(key)
    assert (tmp_path / name).parent == tmp_path
    assert name.split(".")[0] not in ("con", "nul", "")


def test_a_file_is_readable_in_any_editor() -> None:
    note = Note(
        "treaty/date", "Signed 1815", "The Final Act.\n", 3, 0.0, 60.5, (Evidence("a “quote”", "a/b.pdf"),)
    )
    assert to_markdown(note).split("\n") == [
        "---",
        "format: pensieve-note/1",
        'key: "treaty/date"',
        'summary: "Signed 1815"',
        "revision: 3",
        'created: "1970-01-01T00:00:00+00:00"',
        "created_seconds: 0.0",
        'updated: "1970-01-01T00:01:00+00:00"',
        "updated_seconds: 60.5",
        "evidence:",
        '  - {"quote": "a “quote”", "path": "a/b.pdf"}',
        "---",
        "",
        "The Final Act.",
        "",
        "",
    ]


def test_a_date_is_one_value_with_the_exact_seconds_beside_it() -> None:
    note = Note("k", "s", "Two lines,\nno end", revision=2, created=1796000455.447298, updated=1796000460.0)
    told = to_markdown(note)

    assert 'created: "2026-11-30T01:00:55+00:00"\ncreated_seconds: 1796000455.447298\n' in told
    assert told.endswith("no end\n") and from_markdown(told) == note
    moved = told.replace('created: "2026', 'created: "2025')
    assert from_markdown(moved).created == 1796000455 - 365 * 86_400, "what a person changed counts"


def test_a_file_of_an_older_version_is_taken_in() -> None:
    old = (
        '---\nformat: pensieve-note/1\nkey: "k"\nsummary: "s"\nrevision: 1\n'
        'created: "2026-11-30T01:00:55+00:00 1796000455.447298"\nupdated: "2026-11-30T01:00:55+00:00 1796000455.5"\n'
        "---\n\nends with a line\n"
    )
    note = from_markdown(old)

    assert (note.created, note.updated) == (1796000455.447298, 1796000455.5)
    assert note.content == "ends with a line\n"


def test_a_note_written_by_hand_is_understood() -> None:
    note = from_markdown(
        "\ufeff---\r\nkey: my note\r\nsummary: 'it''s short'\r\nlinks: a, b\r\nevidence:\r\n"
        '  - "he said so"\r\ncreated: "2026-01-02"\r\n---\r\nText'
    )
    assert (note.key, note.summary, note.content, note.links) == ("my note", "it's short", "Text", ("a", "b"))
    assert note.evidence == (Evidence("he said so"),)
    assert note.created > 1_700_000_000


@pytest.mark.parametrize(
    ("broken", "slug"),
    [
        ("", "bad_import"),
        ("just text", "bad_import"),
        ("---\nkey: a\n", "bad_import"),
        ("---\nsummary: a\n---\nx", "bad_import"),
        ("---\nformat: other/1\nkey: a\n---\nx", "bad_import"),
        ("---\nformat: pensieve-note/2\nkey: a\n---\nx", "newer_format"),
        ('---\nkey: "a\n---\nx', "bad_import"),
        ('---\nkey: a\nevidence:\n  - {"quote": 5}\n---\nx', "bad_import"),
        ('---\nkey: a\nevidence:\n  - {"span": [1]}\n---\nx', "bad_import"),
        ('---\nkey: a\nlinks: {"a": 1}\n---\nx', "bad_import"),
        ("---\n??\nkey: a\n---\nx", "bad_import"),
    ],
)
def test_a_wrong_newer_or_half_written_file_is_refused_in_words(broken: str, slug: str) -> None:
    with pytest.raises(Miscast) as caught:
        from_markdown(broken, "a.md")
    assert caught.value.slug == slug
    assert caught.value.message.startswith("a.md") and caught.value.hint


@given(st.text(max_size=200), st.text(max_size=50))
def test_any_file_is_a_note_or_a_worded_error(head: str, body: str) -> None:
    for content in (head, f"---\n{head}\n---\n{body}", f"---\nkey: a\n{head}\n---\n{body}"):
        try:
            from_markdown(content)
        except Miscast as error:
            assert error.hint


# --- folders ----------------------------------------------------------------------------------------------


def fill(memory: Memory) -> None:
    memory.notebook.write(
        "treaty/date", "Signed", "1815\n", evidence=[Evidence("q", span=(1, 2), state="ok")]
    )
    memory.notebook.write("Treaty/Date", "Twin", "1816")
    memory.notebook.write(
        "plain", "Plain", "---\nnot front matter\n---\n", links=["treaty/date"], author="me"
    )


def test_an_export_taken_in_elsewhere_is_the_same_notebook(memory: Memory, tmp_path: Path) -> None:
    fill(memory)
    exported = export_markdown(memory.notebook, tmp_path / "out")
    other = open_memory(tmp_path / "other")
    imported = import_markdown(other.notebook, tmp_path / "out")

    assert len(exported.files) == len(set(exported.files)) == len(imported.created) == 3
    for note in memory.notebook.all_notes():
        copy = other.notebook.read(note.key)
        assert replace(copy, created=0, updated=0, author="") == replace(
            note, created=0, updated=0, author=""
        )
    assert set(import_markdown(other.notebook, tmp_path / "out").unchanged) == set(imported.created)
    assert other.notebook.read("plain").revision == 1
    other.close()


def test_a_conflict_is_told_and_overwritten_only_when_asked(memory: Memory, tmp_path: Path) -> None:
    fill(memory)
    export_markdown(memory.notebook, tmp_path)
    memory.notebook.update("plain", "overwrite", "changed here")
    memory.notebook.update("treaty/date", "delete")

    told = import_markdown(memory.notebook, tmp_path)
    assert told.conflicts == ("plain",) and told.created == ("treaty/date",)
    assert memory.notebook.read("plain").content == "changed here"
    asked = import_markdown(memory.notebook, tmp_path, on_conflict="overwrite", author="importer")
    assert asked.updated == ("plain",)
    assert memory.notebook.read("plain").content == "---\nnot front matter\n---\n"
    assert memory.notebook.read("plain", revision=2).content == "changed here"
    assert memory.notebook.history("plain")[-1].action == "import"


def test_one_bad_file_costs_one_file(memory: Memory, tmp_path: Path) -> None:
    """One broken line made every tool fail (servers 3173)."""
    fill(memory)
    export_markdown(memory.notebook, tmp_path)
    (tmp_path / "broken.md").write_text("---\nkey: x\n")
    (tmp_path / "bytes.md").write_bytes(b"---\nkey: y\n---\n\xff\xfe")
    (tmp_path / "long.md").write_text(f"---\nkey: {'k' * 300}\n---\nx")
    (tmp_path / "folder.md").mkdir()
    if os.name == "posix":
        (tmp_path / "link.md").symlink_to("/etc/hostname")
    imported = import_markdown(memory.notebook, tmp_path)

    assert len(imported.unchanged) == 3 and not imported.created
    assert len(imported.problems) == (5 if os.name == "posix" else 4)
    with pytest.raises(WorkspaceError):
        import_markdown(memory.notebook, tmp_path / "missing")


def test_an_export_never_writes_over_another_file(memory: Memory, tmp_path: Path) -> None:
    fill(memory)
    (tmp_path / "plain.md").write_text("my own diary")
    exported = export_markdown(memory.notebook, tmp_path)

    assert (tmp_path / "plain.md").read_text() == "my own diary"
    assert "plain.md" in exported.problems[0] and len(exported.files) == 2
    (tmp_path / "plain.md").unlink()
    assert len(export_markdown(memory.notebook, tmp_path).files) == 3
    memory.notebook.update("plain", "append", "more")
    assert len(export_markdown(memory.notebook, tmp_path).files) == 3
    assert from_markdown((tmp_path / "plain.md").read_text()).revision == 2
    assert not [file for file in tmp_path.iterdir() if file.suffix == ".part"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.md"
    write_file(path, "old")

    def broken(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(WorkspaceError, match="No space left"):
        write_file(path, "new " * 1_000)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.md"]


def test_json_goes_out_and_in(memory: Memory, tmp_path: Path) -> None:
    fill(memory)
    document = export_json(memory.notebook)
    other = open_memory(tmp_path / "other")
    assert set(import_json(other.notebook, document).created) == {"treaty/date", "Treaty/Date", "plain"}
    assert [note.content for note in other.notebook.all_notes()] == [
        note.content for note in memory.notebook.all_notes()
    ]
    assert len(import_json(other.notebook, "\ufeff" + document).unchanged) == 3

    body = json.loads(document)
    body["notes"] += [{"key": 5}, {"key": "x", "content": 5}, {"key": "y", "content": "", "evidence": 3}, 7]
    mixed = import_json(other.notebook, json.dumps(body))
    assert len(mixed.problems) == 4 and len(mixed.unchanged) == 3
    body["format"] = "pensieve-notes/9"
    with pytest.raises(Miscast) as caught:
        import_json(other.notebook, json.dumps(body))
    assert caught.value.slug == "newer_format"
    for wrong in ("", "[]", "{}", "null", '{"notes": 4}'):
        with pytest.raises(Miscast):
            import_json(other.notebook, wrong)
    other.close()
