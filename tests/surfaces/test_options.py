"""Where the folders come from, and which command lines are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pensieve_mcp.server.options import BadOption, Options, read


def options(*argv: str, cwd: Path, **environment: str) -> Options:
    return read(list(argv), environment, cwd)


def test_arguments_come_before_everything_else(tmp_path: Path) -> None:
    found = options("a", "b", cwd=tmp_path, PENSIEVE_FOLDERS="c", CLAUDE_PROJECT_DIR=str(tmp_path))

    assert (found.folders, found.folders_from) == (("a", "b"), "arguments")


def test_the_variable_may_name_several_folders(tmp_path: Path) -> None:
    found = options(cwd=tmp_path, PENSIEVE_FOLDERS=os.pathsep.join(["/x y", "/z"]))

    assert (found.folders, found.folders_from) == (("/x y", "/z"), "PENSIEVE_FOLDERS")


def test_an_empty_argument_is_none(tmp_path: Path) -> None:
    """Hosts pass a setting that was left empty as an empty argument."""
    assert options("", " ", cwd=tmp_path, PENSIEVE_FOLDERS="/z").folders == ("/z",)


def test_the_project_of_the_host_is_served(tmp_path: Path) -> None:
    found = options(cwd=Path("/"), CLAUDE_PROJECT_DIR=str(tmp_path))

    assert (found.folders, found.folders_from) == ((str(tmp_path),), "CLAUDE_PROJECT_DIR")


def test_a_working_directory_counts_only_as_a_project(tmp_path: Path) -> None:
    """Complaint: servers that index whatever folder a host starts them in."""
    assert not options(cwd=tmp_path).given
    (tmp_path / "pyproject.toml").touch()
    assert options(cwd=tmp_path).folders == (str(tmp_path),)


def test_a_home_is_never_taken_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(Path, "home", lambda: tmp_path)

    assert not options(cwd=tmp_path).given
    assert not options(cwd=Path("/"), CLAUDE_PROJECT_DIR=str(tmp_path)).given
    assert not options(cwd=Path("/")).given
    assert options(str(tmp_path), cwd=tmp_path).given


def test_a_named_workspace_needs_no_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    found = options("--workspace", "letters", cwd=tmp_path)

    assert found.given and not found.folders


def test_settings_are_pairs(tmp_path: Path) -> None:
    assert options("--set", "window_tokens=9000", "--set", "encoder=a=b", cwd=tmp_path).settings == {
        "window_tokens": "9000",
        "encoder": "a=b",
    }
    with pytest.raises(BadOption, match="NAME=VALUE"):
        options("--set", "window_tokens", cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8722", ("127.0.0.1", 8722)),
        (":0", ("127.0.0.1", 0)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_this_machine_unless_it_says_otherwise(
    text: str, address: tuple[str, int], tmp_path: Path
) -> None:
    assert options("--http", text, cwd=tmp_path).http == address


def test_beyond_this_machine_a_token_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no token"):
        options("--http", "0.0.0.0:8722", cwd=tmp_path)
    assert options("--http", "0.0.0.0:8722", cwd=tmp_path, PENSIEVE_TOKEN="s3cret").token == "s3cret"


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "1:99999", "host:-1", "٨٧٢٢", "８７２２", "1:²", "1" * 5_000]
)
def test_an_address_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="HOST:PORT"):
        options("--http", text, cwd=tmp_path)
