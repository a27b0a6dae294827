from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.index.upgrading import WINDOW_CHARS, windows


def test_a_passage_gives_itself_and_windows_of_about_a_quarter_thousand():
    text = " ".join(f"word{number}" for number in range(80))
    whole, *parts = windows(text)
    assert whole == text and len(parts) == -(-len(text) // WINDOW_CHARS)
    assert " ".join(parts) == text


def test_a_short_text_is_one_window():
    assert windows("  a few words ") == ["a few words"]
    assert windows("x" * (WINDOW_CHARS + 20)) == ["x" * (WINDOW_CHARS + 20)]


@given(st.text(alphabet="ab 東\n", max_size=1_000))
def test_windows_hold_all_of_the_text(text):
    whole, *parts = windows(text)
    assert whole == text.strip()
    assert not parts or "".join("".join(parts).split()) == "".join(whole.split())
    assert all(len(one) <= 1.6 * WINDOW_CHARS for one in parts)
