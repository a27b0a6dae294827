"""Settings come in two steps; each value knows where it came from (style section 11)."""

from pathlib import Path

import pytest

from pensieve_mcp.errors import WorkspaceError
from pensieve_mcp.settings import Settings, data_folder, resolve


def test_the_nearer_source_wins_and_is_named(tmp_path: Path) -> None:
    far, near = tmp_path / "far.toml", tmp_path / "near.toml"
    far.write_text("window_tokens = 10_000\nrounds = 7\nhidden_files = true\n", encoding="utf-8")
    near.write_text("window_tokens = 20_000\n", encoding="utf-8")
    resolved = resolve(files=(far, near), environment={"PENSIEVE_ROUNDS": "9"}, arguments={"workers": 3})
    assert (resolved.settings.window_tokens, resolved.settings.rounds) == (20_000, 9)
    assert resolved.settings.hidden_files is True
    assert resolved.sources["window_tokens"] == str(near)
    assert resolved.sources["rounds"] == "PENSIEVE_ROUNDS"
    assert resolved.sources["workers"] == "argument"
    assert resolved.sources["encoder"] == "default"


def test_the_defaults_are_the_papers_budget() -> None:
    assert (Settings().window_tokens, Settings().rounds) == (32_000, 150)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("window_token = 1", "window_tokens"),
        ("window_tokens = 'many'", "whole number"),
        ("window_tokens = 1", "least"),
        ("window_tokens = '١٢٠٠٠'", "whole number"),
        ("hidden_files = 'perhaps'", "true or false"),
        ("dialect = 'latin'", "published"),
        ("window_tokens = = 3", "TOML"),
        ("overlap_tokens = 5000", "smaller"),
    ],
)
def test_a_bad_settings_file_is_refused_with_the_place_and_the_way_out(
    tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(WorkspaceError) as refused:
        resolve(files=(file,))
    assert says in str(refused.value)
    assert refused.value.hint


def test_a_settings_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(b"\xef\xbb\xbfrounds = 3\n")
    assert resolve(files=(file,)).settings.rounds == 3


def test_an_empty_variable_counts_as_not_set() -> None:
    assert resolve(environment={"PENSIEVE_ROUNDS": ""}).settings.rounds == 150


def test_state_lies_in_a_folder_of_our_own_name() -> None:
    assert "pensieve-statelm" in str(data_folder({}))
    assert data_folder({"PENSIEVE_HOME": "/somewhere"}) == Path("/somewhere").absolute()
