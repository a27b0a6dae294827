"""The walk takes what the rules let in, says why it leaves the rest, and never leaves its roots."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pensieve_mcp.corpus import folders, walk
from pensieve_mcp.corpus.folders import Gone, Swapped, open_regular
from pensieve_mcp.corpus.names import name_roots, read_path, show_path
from pensieve_mcp.corpus.types import FoundFile, Root, Skipped, Unreadable
from pensieve_mcp.corpus.walk import RootState, WalkRules, explain, fresh, survey

CANARY = b"canary-7f3a must never surface"
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX file names, links and descriptors")


def walked(top: Path, **rules: object) -> tuple[set[bytes], dict[str, str], RootState]:
    files, skipped, states = set(), {}, []
    for item in survey([Root("r", str(top))], WalkRules(**rules)):  # type: ignore[arg-type]
        if isinstance(item, FoundFile):
            files.add(item.raw)
        elif isinstance(item, Skipped):
            skipped[item.path] = item.reason
        else:
            states.append(item)
    assert len(states) == 1
    return files, skipped, states[0]


@pytest.fixture(params=["descriptors", "paths"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening folders: the second is what Windows uses."""
    if request.param == "paths":
        monkeypatch.setattr(folders, "HAS_DIR_FD", False)
    elif not folders.HAS_DIR_FD:
        pytest.skip("this system has no descriptors of folders")
    return str(request.param)


def test_every_file_is_taken_or_told(tmp_path: Path, way: str) -> None:
    for name in (
        "a.txt", "sub/b.md", ".hidden/x", ".env", "keys/id_rsa", "keys/server.pem", "node_modules/m.js", "x.log",
        "sub/keep.log", "sub/.pensieveignore", ".gitignore",
    ):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub/.pensieveignore").write_text("!keep.log\n")

    files, skipped, state = walked(tmp_path)

    assert files == {b"a.txt", b"sub/b.md", b"sub/keep.log"}
    assert skipped == {
        "r/.hidden": "hidden", "r/.env": "secret", "r/keys/id_rsa": "secret", "r/keys/server.pem": "secret",
        "r/node_modules": "ignored", "r/x.log": "ignored", "r/.gitignore": "hidden", "r/sub/.pensieveignore": "hidden",
    }  # fmt: skip
    assert (state.state, state.files) == ("ok", 3)


def test_a_rule_file_in_the_folder_cannot_let_secrets_in_but_the_person_can(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PASSWORD=1")
    (tmp_path / ".pensieveignore").write_text("!.env\n")

    assert walked(tmp_path)[0] == set()
    assert walked(tmp_path, patterns=("!.env",))[0] == {b".env"}


def test_files_named_like_stores_of_keys_stay_out_and_prose_about_them_is_read(tmp_path: Path) -> None:
    stores = {
        "aws-credentials", "aws-credentials.txt", "aws_keys.csv", "ann_accessKeys.csv", "credentials.ini",
        "secrets.yaml", "secrets-prod.yml", "credentials.local.json", "passwords.txt", "client_secret_12.json",
        "db_credentials.toml",
    }  # fmt: skip
    prose = {
        "credentials-policy.txt", "secrets-of-the-mill.txt", "secrets.md", "aws-credentials-guide.md", 
        "password-rules.pdf", "credentials.md", "secret.txt",
    }  # fmt: skip
    for name in stores | prose:
        (tmp_path / name).write_text("x")
    files, skipped, _ = walked(tmp_path)

    assert {name.decode() for name in files} == prose
    assert skipped == {f"r/{name}": "secret" for name in stores}


def test_a_skipped_folder_is_one_entry_not_thousands(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    for i in range(50):
        (tmp_path / "node_modules" / f"{i}.js").touch()

    items = list(survey([Root("r", str(tmp_path))], WalkRules()))

    assert [type(x) for x in items] == [Skipped, RootState]
    assert items[0].folder  # type: ignore[union-attr]


@posix
def test_links_loops_and_special_files_are_told_and_not_followed(tmp_path: Path, way: str) -> None:
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "canary.txt").write_bytes(CANARY)
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "ok.txt").write_text("fine")
    (top / "to-file").symlink_to(secret / "canary.txt")
    (top / "to-folder").symlink_to(secret)
    (top / "sub" / "loop").symlink_to(top)
    (top / "self").symlink_to("self")
    (top / "dangling").symlink_to("nowhere")
    os.mkfifo(top / "fifo")
    with socket.socket(socket.AF_UNIX) as door:
        here = Path.cwd()
        os.chdir(top)  # the path of a socket is limited to 108 bytes
        try:
            door.bind("socket")
        finally:
            os.chdir(here)

        for follow in (False, True):
            files, skipped, _ = walked(top, follow_links=follow)
            assert files == {b"ok.txt"}
            told = {"to-file", "to-folder", "sub/loop", "self", "dangling"}
            assert {k: v for k, v in skipped.items() if v == "symlink"} == {f"r/{n}": "symlink" for n in told}
            assert skipped["r/fifo"] == skipped["r/socket"] == "special"


@posix
def test_links_inside_the_root_are_followed_when_asked_and_the_real_name_wins(tmp_path: Path) -> None:
    (tmp_path / ".store").mkdir()
    (tmp_path / ".store" / "data.txt").write_text("x")
    (tmp_path / "plain.txt").write_text("y")
    (tmp_path / "a-link.txt").symlink_to("plain.txt")
    (tmp_path / "folder").symlink_to(".store")
    (tmp_path / "one.txt").symlink_to(".store/data.txt")

    files, skipped, _ = walked(tmp_path, follow_links=True)

    assert b"plain.txt" in files and skipped["r/a-link.txt"] == "symlink"
    assert files & {b"folder/data.txt", b"one.txt"}
    for raw in files:
        with open_regular(Root("r", str(tmp_path)), raw, follow_links=True) as file:
            assert file.read() in (b"x", b"y")


@posix
@pytest.mark.skipif(sys.platform == "darwin", reason="the file system refuses such names")
def test_names_in_any_bytes_are_kept_and_shown_escaped(tmp_path: Path, way: str) -> None:
    raws = [b"caf\xe9.txt", b"new\nline.txt", "e\u0301.txt".encode(), "é.txt".encode(), b"A.txt", b"a.txt",
            "evil\u202etxt.exe".encode(), b"back\\slash", b"tab\t", "zwj\u200dok".encode(), "日本.txt".encode()]  # fmt: skip  # noqa: E501
    for raw in raws:
        with open(os.path.join(os.fsencode(tmp_path), raw), "wb") as file:  # noqa: PTH118, PTH123
            file.write(raw)

    found = [x for x in survey([Root("r", str(tmp_path))], WalkRules()) if isinstance(x, FoundFile)]

    assert {x.raw for x in found} == set(raws)
    assert len({x.path for x in found}) == len(raws)
    for item in found:
        shown = item.path
        assert "\n" not in shown and "\t" not in shown and "\u202e" not in shown
        shown.encode("utf-8")  # no lone surrogates
        assert read_path(shown.removeprefix("r/")) == item.raw
        with open_regular(Root("r", str(tmp_path)), item.raw, expect=item.stat) as file:
            assert file.read() == item.raw
    assert show_path("r", b"new\nline.txt") == "r/new\\nline.txt"


@posix
def test_depth_beyond_the_limit_is_told_once(tmp_path: Path) -> None:
    """300 levels; the path is longer than PATH_MAX allows for names of 20 letters."""
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 20, dir_fd=fd)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=fd)
        os.close(os.open("f.txt", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(fd)
        fd = below
    os.close(fd)

    files, skipped, state = walked(tmp_path)

    assert len(files) == 128
    assert list(skipped.values()) == ["too_deep"]
    assert state.state == "ok"


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="the superuser can read everything")
def test_a_folder_without_permission_is_told_and_the_rest_is_walked(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "open.txt").touch()
    closed.chmod(0)
    try:
        files, skipped, state = walked(tmp_path)
    finally:
        closed.chmod(0o700)
    assert (files, skipped, state.state) == ({b"open.txt"}, {"r/closed": "unreadable"}, "ok")


@posix
def test_a_folder_that_cannot_be_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as above for the superuser: the system call says no."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "open.txt").touch()
    real = os.open

    def refuse(path: object, *args: object, **kwargs: object) -> int:
        if path == "closed":
            raise PermissionError(13, "Permission denied", "closed")
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    files, skipped, _ = walked(tmp_path)

    assert (files, skipped) == ({b"open.txt"}, {"r/closed": "unreadable"})


def test_a_root_that_vanished_is_unreachable_and_an_empty_one_is_told(tmp_path: Path, way: str) -> None:
    (tmp_path / "empty").mkdir()
    roots = [Root("gone", str(tmp_path / "gone")), Root("empty", str(tmp_path / "empty"))]

    items = list(survey(roots, WalkRules()))

    assert [(x.root, x.state) for x in items if isinstance(x, RootState)] == [
        ("gone", "unreachable"),
        ("empty", "empty"),
    ]
    assert [(x.path, x.reason) for x in items if isinstance(x, Skipped)] == [("gone", "unreachable")]


def test_a_root_can_be_one_file(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("hello")
    (root,) = name_roots([tmp_path / "report.txt"])

    found, _ = survey([root], WalkRules())

    assert isinstance(found, FoundFile) and (found.path, found.raw) == ("report.txt", b"report.txt")
    with open_regular(root, found.raw, expect=found.stat) as file:
        assert file.read() == b"hello"
    (tmp_path / "report.txt").unlink()
    assert [x.state for x in survey([root], WalkRules()) if isinstance(x, RootState)] == ["unreachable"]


def test_roots_get_unique_names(tmp_path: Path) -> None:
    paths = [tmp_path / x for x in ("a/docs", "b/docs", "c/Docs", "a/x.txt", "b/x.txt")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch() if path.suffix else path.mkdir()

    roots = name_roots([*paths, paths[0]], taken=["x.txt"])

    assert [r.name for r in roots] == ["docs", "docs-2", "Docs-3", "x-2.txt", "x-3.txt"]


def test_cancelling_never_makes_the_rest_look_removed(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"d{i}").mkdir()
        (tmp_path / f"d{i}" / "f").touch()
    asked = iter([False, False, False, True, True, True, True, True, True, True])

    items = list(
        survey([Root("r", str(tmp_path)), Root("s", str(tmp_path))], WalkRules(), cancel=lambda: next(asked))
    )

    states = [x for x in items if isinstance(x, RootState)]
    assert [s.state for s in states] == ["partial", "partial"]


def test_the_number_of_files_is_bounded_and_told(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"{i}").touch()

    files, skipped, state = walked(tmp_path, max_files=3)

    assert len(files) == 3 and skipped == {"r": "too_large"} and state.state == "partial"


def test_our_own_state_is_not_walked_into(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "corpus.db").touch()

    assert walked(tmp_path, never=(str(tmp_path / "state"),))[:2] == (set(), {"r/state": "ignored"})


@posix
@pytest.mark.parametrize(
    "swap", ["file for a link", "folder for a link", "file for a fifo", "file for a file"]
)
def test_what_is_swapped_after_the_walk_is_not_read(tmp_path: Path, way: str, swap: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f.txt").write_bytes(CANARY)
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    file = top / "sub" / "f.txt"
    file.write_bytes(b"harmless, and of the right length")
    root = Root("r", str(top))
    (item,) = (x for x in survey([root], WalkRules()) if isinstance(x, FoundFile))
    steps: dict[str, Callable[[], object]] = {
        "file for a link": lambda: (file.unlink(), file.symlink_to(outside / "f.txt")),
        "folder for a link": lambda: (file.unlink(), file.parent.rmdir(), (top / "sub").symlink_to(outside)),
        "file for a fifo": lambda: (file.unlink(), os.mkfifo(file)),
        "file for a file": lambda: (outside / "f.txt").replace(file),
    }
    steps[swap]()

    with pytest.raises(Unreadable) as caught:
        open_regular(root, item.raw, expect=item.stat)

    assert caught.value.reason in ("symlink", "special", "unreadable")
    assert fresh(root, item.raw, item.stat) != "yes"


@posix
def test_a_folder_swapped_for_a_link_under_the_walk_is_not_entered(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary.txt").write_bytes(CANARY)
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "a.txt").touch()

    items = []
    for item in survey([Root("r", str(top))], WalkRules()):
        items.append(item)
        if isinstance(item, FoundFile) and item.raw == b"a.txt":  # the folder is listed, not yet opened
            (top / "sub").rmdir()
            (top / "sub").symlink_to(outside)

    assert [x.reason for x in items if isinstance(x, Skipped)] == ["symlink"]
    assert [x.raw for x in items if isinstance(x, FoundFile)] == [b"a.txt"]


@pytest.mark.parametrize("raw", [b"../outside/f", b"/etc/passwd", b"a/../../f", b"", b".", b"a//b", b"a\0b"])
def test_no_path_leads_out_of_a_root(tmp_path: Path, way: str, raw: bytes) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(CANARY)
    top = tmp_path / "top"
    top.mkdir()

    with pytest.raises(Unreadable):
        open_regular(Root("r", str(top)), raw)


def test_opening_tells_gone_from_changed(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("one")
    root = Root("r", str(tmp_path))
    (item,) = (x for x in survey([root], WalkRules()) if isinstance(x, FoundFile))
    assert fresh(root, b"f", item.stat) == "yes"

    file.write_text("two!")
    assert fresh(root, b"f", item.stat) == "changed"
    with pytest.raises(Swapped):
        open_regular(root, b"f", expect=item.stat)
    file.unlink()
    assert fresh(root, b"f", item.stat) == "gone"
    with pytest.raises(Gone):
        open_regular(root, b"f")


def test_explain_names_the_rule_and_agrees_with_the_walk(tmp_path: Path) -> None:
    for name in ("a.txt", "sub/x.log", "sub/deep/y.txt", "build/z.txt", ".env", ".dot", "sub/keep.log"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / ".gitignore").write_text("# rules\n*.log\nbuild/\n")
    (tmp_path / "sub" / ".pensieveignore").write_text("!keep.log\n")
    roots = [Root("r", str(tmp_path))]
    rules = WalkRules()

    for item in survey(roots, rules):
        if isinstance(item, FoundFile):
            assert explain(roots, rules, item.path).taken
        elif isinstance(item, Skipped):
            why = explain(roots, rules, item.path)
            assert (why.taken, why.reason, why.detail) == (False, item.reason, item.detail)
    log = explain(roots, rules, str(tmp_path / "sub" / "x.log"))
    assert log.rule is not None and str(log.rule) == "r/.gitignore:2: *.log"
    assert (
        explain(roots, rules, "r/build/z.txt").detail
        == "its folder r/build is passed over: r/.gitignore:3: build/"
    )
    assert explain(roots, rules, "r/sub/keep.log").detail == "let in by r/sub/.pensieveignore:1: !keep.log"
    assert "does not exist" in explain(roots, rules, "r/none.txt").detail
    assert "none of the roots" in explain(roots, rules, "elsewhere/x").detail


def test_an_unusable_rule_file_is_told(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("a" * 5_000 + "\n")

    items = [x for x in survey([Root("r", str(tmp_path))], WalkRules()) if isinstance(x, Skipped)]

    assert any("over the limits" in x.detail for x in items)


def test_the_walk_module_offers_what_others_import() -> None:
    assert set(walk.__all__) >= {"survey", "explain", "open_regular", "fresh", "name_roots", "WalkRules"}
