"""What a second person stumbled over who tried the shell: paths, hints and first lines."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.places import is_there, typed

NOBODY = "~nosuchuserofours"


# -- 1: a home that nobody knows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        ["index", NOBODY],
        ["explain", f"{NOBODY}/a.txt"],
        ["search", "rent", "--under", f"{NOBODY}/a"],
        ["search", "rent", "--folder", NOBODY],
        ["search", "rent", "--state", NOBODY],
        ["ask", "Who let the mill?", NOBODY],
        ["ask", "Who let the mill?", "--backend", "local", "--model", f"{NOBODY}/m.gguf"],
        ["install", "codex", NOBODY, "--dry-run"],
        ["install", "codex", "--state", NOBODY, "--dry-run"],
        ["workspace", "add", "other", NOBODY],
    ],
    ids=" ".join,
)
def test_a_home_that_nobody_knows_is_told_with_a_next_step(pensieve, documents, call):
    assert pensieve("index", documents).code == 0
    said = pensieve(*call)
    assert said.code in (1, 2)
    assert "nosuchuserofours" in said.err and "Write the path out" in said.err
    assert "RuntimeError" not in said.err and "fault of ours" not in said.err


def test_a_data_folder_in_a_home_that_nobody_knows_is_told(pensieve, documents, monkeypatch):
    monkeypatch.setenv("PENSIEVE_HOME", f"{NOBODY}/state")
    said = pensieve("index", documents)
    assert said.code == 1 and "knows no user" in said.err


def test_a_server_with_a_home_that_nobody_knows_says_so():
    from pensieve_mcp.server.options import Options

    (problem,) = Options(folders=(NOBODY,)).problems()
    assert problem.slug == "no_home"


def test_a_folder_that_is_itself_called_so_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(NOBODY).mkdir()
    assert is_there(typed(NOBODY)) and is_there(typed(f"./{NOBODY}"))


def test_only_one_file_asks_for_a_home():
    """What `~` stands for is asked in one place, so that the answer is worded in one place."""
    package = Path(__file__).resolve().parents[2] / "pensieve_mcp"
    asking = {file.name for file in package.rglob("*.py") if "expanduser(" in file.read_text("utf-8")}
    assert asking == {"places.py"}


# -- 2: where the machine does not let us look -----------------------------------------------------------------------


@pytest.fixture
def locked(documents, monkeypatch):
    """A folder with a file, of which the machine lets us see nothing; also where the tests run as root."""
    folder = documents / "locked"
    folder.mkdir()
    (folder / "b.txt").write_text("The key hangs in the mill.", encoding="utf-8")
    real = {name: getattr(os, name) for name in ("stat", "lstat", "open", "scandir")}

    def refusing(name):
        def call(path=".", *more, **options):
            if isinstance(path, (str, os.PathLike)) and Path(os.fspath(path)).is_relative_to(folder):
                if name in ("open", "scandir") or os.fspath(path) != str(folder):
                    raise PermissionError(13, "Permission denied", os.fspath(path))
            elif path == "locked" and name == "open":
                raise PermissionError(13, "Permission denied", path)
            return real[name](path, *more, **options)

        return call

    for name in real:
        monkeypatch.setattr(os, name, refusing(name))
    yield folder


def test_what_lies_in_a_locked_folder_is_explained(pensieve, documents, locked):
    assert pensieve("index", documents).code == 0
    for path in (locked / "b.txt", "documents/locked/b.txt"):
        said = pensieve("explain", path)
        assert said.code == 0, said.err
        assert "documents/locked/b.txt: out (unreadable)" in said.out


def test_a_path_that_may_not_be_looked_at_is_worded_everywhere(pensieve, documents, locked, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("The key of the mill hangs here.", encoding="utf-8")
    assert pensieve("index", other).code == 0
    for call in (
        ["explain", locked / "b.txt"],
        ["index", locked / "b.txt"],
        ["search", "key", "--under", locked / "b.txt"],
        ["read", locked / "b.txt"],
        ["install", "codex", locked / "b.txt", "--dry-run"],
        ["note", "export", locked / "out.json"],
    ):
        said = pensieve(*call)
        assert said.code in (1, 2), call
        assert "Permission denied" in said.err or "permission" in said.err, (call, said.err)
        assert "fault of ours" not in said.err, call


def test_whether_something_is_there_can_be_refused(locked):
    with pytest.raises(WorkspaceError) as refused:
        is_there(locked / "b.txt")
    assert refused.value.slug == "not_permitted"
    assert stat.S_ISDIR(locked.stat().st_mode)
    assert not is_there("a" * 5000) and not is_there("a\0b")


# -- 3: a source that never was one ----------------------------------------------------------------------------------


def test_a_source_that_nobody_knows_is_not_revoked(pensieve, documents):
    assert pensieve("index", documents).code == 0
    for typo in (
        "nofile",
        "leese.md",
        "documents/leese.md",
        documents / "leese.md",
        "../lease.md",
        "~x/lease.md",
    ):
        for command in (["revoke"], ["revoke", "--undo"], ["purge", "--yes"], ["purge", "--dry-run"]):
            said = pensieve("note", *command, "--source", typo)
            assert said.code == 1 and not said.out, (command, typo)
            assert "fault of ours" not in said.err
    assert "Did you mean documents/lease.md?" in pensieve("note", "revoke", "--source", "leese.md").err
    assert pensieve("note", "revoke", "--json").data == []
    assert pensieve("note", "list", "--under", "leese.md").code == 1


def test_a_source_that_is_gone_can_be_revoked(pensieve, documents):
    """By its own path, by one of this machine, or by the folder it lay in."""
    assert pensieve("index", documents).code == 0
    quote = "The rent is forty-two florins a quarter"
    assert pensieve("note", "write", "rent", "42", "--from", "documents/lease.md", "--quote", quote).code == 0
    (documents / "lease.md").unlink()
    assert pensieve("index").code == 0
    assert (
        "Did you mean documents/lease.md?"
        in pensieve("note", "revoke", "--source", "documents/leasse.md").err
    )
    for path in ("lease.md", "documents/lease.md", documents / "lease.md"):
        done = pensieve("note", "revoke", "--source", path, "--json")
        assert done.code == 0 and done.data["revoked"] + done.data["review"], path
        assert pensieve("note", "revoke", "--source", path, "--undo").code == 0
    assert pensieve("note", "purge", "--source", "lease.md", "--yes").code == 0
    assert pensieve("note", "purge", "--source", "lease.md", "--yes").code == 0, "it is known from the past"


def test_a_file_that_is_not_read_yet_can_be_revoked(pensieve, documents):
    assert pensieve("index", documents).code == 0
    (documents / "new.txt").write_text("Not read yet.", encoding="utf-8")
    assert pensieve("note", "revoke", "--source", "new.txt").code == 0
    assert pensieve("note", "revoke", "--json").data[0]["path"] == "documents/new.txt"


# -- 4: a question over nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [[], ["--no-search"], ["--backend", "scripted"]], ids=" ".join)
def test_a_question_over_nothing_says_that_nothing_is_there(pensieve, home, tmp_path, backend):
    empty = tmp_path / "empty"
    empty.mkdir()
    script = tmp_path / "script.jsonl"
    script.write_text('{"name": "finish", "arguments": {"answer": "not found"}}\n', encoding="utf-8")
    named = ["--model", script] if "scripted" in backend else ["--backend", "extractive"]
    said = pensieve("ask", "Who let the mill?", empty, *backend, *named, "--quiet")
    assert said.code == 1 and "not found" in said.out
    assert f"No readable document was found in {empty}; pensieve skipped tells" in said.err
    detail = pensieve("ask", "Who let the mill?", empty, *backend, *named, "--quiet", "--json").data["detail"]
    assert detail.startswith("No readable document was found")


# -- 5: the whole of what was forgotten ------------------------------------------------------------------------------


def test_a_long_text_is_restored_whole_at_the_shell(pensieve, documents):
    (documents / "long.txt").write_text(" ".join(f"word{n}" for n in range(9_000)), encoding="utf-8")
    assert pensieve("index", documents).code == 0
    begun = pensieve("cast", "readChunk", "chunk_id=1", "--json").data
    episode, texts, numbers = begun["episode"], [], []
    for chunk in range(2, 14):  # together more than one result may have for a host
        read = ["readChunk", f"chunk_id={chunk}", "max_bytes=40000", "--episode", episode]
        told = pensieve("cast", *read, "--json").data
        texts.append(told["text"])
        numbers.append(told["message"]["msg_id"])
    assert pensieve("forget", *numbers, "--episode", episode).code == 0
    said = pensieve("restore", *numbers, "--episode", episode)
    assert said.code == 0 and all(text in said.out for text in texts)
    assert len(said.out) > 12_000 and "more characters" not in said.out and "cut here" not in said.out

    assert pensieve("forget", *numbers, "--episode", episode).code == 0
    said = pensieve("restore", *numbers, "--episode", episode, "--set", "result_bytes=4000")
    assert "more characters" in said.out, "who asks for less gets less"


# -- 7: hints that fit where they are given --------------------------------------------------------------------------


def test_only_who_can_leave_the_episode_out_is_told_to(pensieve, documents):
    assert pensieve("index", documents).code == 0
    for call in (
        ["purge", "--episode", "nosuch", "--yes"],
        ["plot", "--episode", "zzz"],
        ["episodes", "show", "nosuch"],
        ["episodes", "export", "nosuch"],
        ["forget", "m1", "--episode", "nosuch"],
        ["restore", "m1", "--episode", "nosuch"],
    ):
        said = pensieve(*call)
        assert said.code == 1 and "pensieve episodes list" in said.err, call
        assert "leave the episode out" not in said.err, call
    said = pensieve("cast", "checkBudget", "--episode", "nosuch")
    assert said.code == 1 and "leave the episode out to begin a new one" in said.err


# -- 8: the first line -----------------------------------------------------------------------------------------------


def test_what_our_own_library_leaves_out_is_not_told(pensieve, tmp_path, monkeypatch):
    """An installed package has compiled files beside the library's one program."""
    import shutil

    from pensieve_mcp import sample

    library = shutil.copytree(sample.LIBRARY, tmp_path / "library")
    (library / "__pycache__").mkdir(exist_ok=True)
    (library / "__pycache__" / "oil_reckoning.cpython-311.pyc").write_bytes(b"\0")
    monkeypatch.setattr(sample, "LIBRARY", library)
    said = pensieve("try", "-q", "Who paid for the casting of the second bell?")
    assert said.code == 0 and "ignored" not in said.err
    own = shutil.copytree(library, tmp_path / "own")
    assert "ignored" in pensieve("try", own, "-q", "Who paid for the casting of the second bell?").err
    (library / "broken.docx").write_bytes(b"PK\x03\x04 nothing")
    assert "Skipped 1" in pensieve("try", "-q", "Who paid for the casting of the second bell?").err


# -- 9: files into folders that are not there ------------------------------------------------------------------------


def test_a_file_for_a_folder_that_is_not_there_is_refused_before_anything_is_done(
    pensieve, documents, tmp_path
):
    assert pensieve("index", documents).code == 0
    begun = pensieve("cast", "checkBudget", "--json").data["episode"]
    before = pensieve("episodes", "list", "--json").data
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "missing" / "below", tmp_path / "file"):
        for call in (
            ["ask", "What is the rent?", "--svg", folder / "p.svg"],
            ["ask", "What is the rent?", "--save", folder / "run.jsonl"],
            ["plot", "--episode", begun, "--svg", folder / "p.svg"],
            ["plot", "--episode", begun, "--png", folder / "p.png"],
            ["try", "--svg", folder / "p.svg"],
            ["episodes", "export", begun, folder / "e.jsonl"],
            ["note", "export", folder / "n.json"],
            ["run", "--explain", folder / "x.txt", "codex"],
        ):
            said = pensieve(*call)
            assert said.code == 1 and str(folder) in said.err and not said.out, (call, said.err)
            assert "fault of ours" not in said.err and "name another place" in said.err, (call, said.err)
    assert not (tmp_path / "missing").exists()
    assert pensieve("episodes", "list", "--json").data == before, "nothing was asked"
    assert pensieve("ask", "What is the rent?", "--quiet", "--svg", "pic").code in (0, 1)
    assert (tmp_path / "pic").read_text("utf-8").startswith("<svg"), "the file is called as it was named"


# -- 10: calls that fail before there is a conversation --------------------------------------------------------------


def test_a_first_call_that_fails_begins_no_episode(pensieve, documents):
    assert pensieve("index", documents).code == 0
    for call in (
        ["readChunk", "chunk_id=999999"],
        ["readChunk", "chunk_id=zzz"],
        ["searchEngine", "keyword="],
        ["searchEngine", "keyword=rent", "under=nosuch"],
        ["deleteContext", "msg_id=m1"],
        ["readNote", "key=nosuch"],
        ["restoreContext", "msg_id=m1"],
    ):
        said = pensieve("cast", *call)
        assert said.code == 1 and said.out and "Episode" not in said.err, call
        assert not said.out.startswith("m"), "it has no handle, since it is in no record"
        told = pensieve("cast", *call, "--json")
        assert told.code == 1 and told.data["error"] and "episode" not in told.data, call
    assert pensieve("episodes", "list", "--json").data == []

    begun = pensieve("cast", "checkBudget", "--json").data["episode"]
    failed = pensieve("cast", "readChunk", "chunk_id=999999", "--episode", begun)
    assert failed.code == 1 and failed.out.startswith("m"), "in a conversation it is recorded, as over MCP"


# -- 11: a command misspelt ------------------------------------------------------------------------------------------


def test_a_misspelt_command_gets_the_near_one(pensieve, home):
    for call, near in (
        (["serach", "mill"], "search"),
        (["notes"], "note"),
        (["note", "shwo", "a"], "show"),
        (["episodes", "lsit"], "list"),
        (["model", "instal"], "install"),
    ):
        said = pensieve(*call)
        assert said.code == 2 and "No such command" in said.err
        assert "Did you mean" in said.err and near in said.err.split("Did you mean")[1], said.err
    assert "Did you mean" not in pensieve("qqqqq").err
    assert "No such option" in pensieve("--serach").err


# -- 12: a model that is there already -------------------------------------------------------------------------------


def test_what_is_given_is_looked_at_though_the_model_is_there(pensieve, home, tmp_path, monkeypatch):
    import hashlib

    from pensieve_mcp.statelm import bundled

    base, adapter = tmp_path / "base" / bundled.BASE_NAME, tmp_path / "adapter.gguf"
    base.parent.mkdir()
    base.write_bytes(b"GGUF base")
    adapter.write_bytes(b"GGUF adapter")
    monkeypatch.setattr(bundled, "BASE_SHA256", hashlib.sha256(b"GGUF base").hexdigest())
    monkeypatch.setattr(bundled, "ADAPTER", adapter)
    monkeypatch.setattr(bundled, "card", dict)
    there = bundled.folder_of(home)
    there.mkdir(parents=True)
    (there / bundled.BASE_NAME).write_bytes(b"GGUF base")
    (there / bundled.merged_name()).write_bytes(b"GGUF merged")

    nothing = tmp_path / "nothing"
    nothing.mkdir()
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("no model")
    said = pensieve("model", "install", "--from", wrong)
    assert said.code == 1 and "wrong.txt is not the base" in said.err and "Ready" not in said.out
    said = pensieve("model", "install", "--from", nothing)
    assert said.code == 1 and f"There is no {bundled.BASE_NAME}" in said.err
    assert (there / bundled.BASE_NAME).read_bytes() == b"GGUF base"
    assert pensieve("model", "install", "--from", base.parent).code == 0
    assert pensieve("model", "install").code == 0
    assert not list(there.glob("*.part"))
