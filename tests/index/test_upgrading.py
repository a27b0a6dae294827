import itertools

from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.index.highlight import LONGEST, stretches
from pensieve_mcp.index.upgrading import parts


def test_a_passage_gives_itself_and_its_sentences():
    text = " ".join(
        f"In the year {number} the harbour of the town froze over and no ship came." for number in range(5)
    )
    whole, *sentences = parts(text)
    assert whole == text == " ".join(sentences) and len(sentences) == 5
    assert [text[start:end] for start, end in stretches(text)] == sentences


def test_a_single_sentence_has_one_vector():
    assert parts("  a few words ") == ["a few words"]
    assert parts("") == [""]


def test_a_long_sentence_is_cut_at_blanks():
    text = " ".join(f"word{number}" for number in range(80))
    whole, *cuts = parts(text)
    assert whole == " ".join(cuts) == text and max(map(len, cuts)) <= LONGEST


@given(st.text(alphabet="ab 東.!?\n", max_size=1_000))
def test_stretches_hold_all_of_the_text(text):
    whole, *sentences = parts(text)
    assert whole == text.strip()
    assert not sentences or "".join("".join(sentences).split()) == "".join(whole.split())
    assert all(len(one) <= LONGEST for one in sentences)
    spans = stretches(text)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
