"""What is indexed of a text, field by field. The values are a contract with every index on disk: when a snapshot
here changes, `fields.VERSION` must be raised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pensieve_mcp.index import fields
from pensieve_mcp.index.fields import Values


def test_plain_english_fills_one_field():
    assert fields.values("The treaty was signed.") == snapshot(Values(body="The treaty was signed."))


def test_identifiers_are_taken_apart_and_kept_whole():
    assert fields.values("getHTTPResponse(path_hooks)") == snapshot(
        Values(
            body="getHTTPResponse(path_hooks)",
            parts="get HTTP Response path hooks",
            marks="path_hooks",
        )
    )


def test_words_with_signs_stay_whole():
    text = "C++, #tag, @nasa a=b 50% foo@bar.com 2026.4.10 multi-agent and/or AT&T sys.path_hooks"
    assert fields.values(text).marks == snapshot(
        "c++ #tag @nasa a=b 50% foo@bar.com 2026.4.10 multi-agent and/or at&t sys.path_hooks"
    )


def test_unspaced_scripts_become_pairs_and_singles_and_leave_the_words():
    assert fields.values("東京都 and 서울 ﾃｽﾄ") == snapshot(
        Values(body="  and    ", grams="東京 京都 東 京 都 서울 서 울 テス スト テ ス ト")
    )


def test_thai_becomes_triples():
    assert fields.values("ภาษาไทย").grams == snapshot("ภาษ าษา ษาไ าไท ไทย")


def test_cyrillic_greek_and_arabic_go_to_the_world_field():
    for text in ("Книги на столе", "Η Αθήνα", "الكتاب على الطاولة"):
        values = fields.values(text)
        assert values.world and not values.body


def test_latin_letters_beyond_ascii_add_prefixes():
    assert fields.values("Çocukların kitapları").prefix == snapshot("çocuk kitap")


def test_signs_that_writers_leave_out_do_not_split_words():
    assert fields.fold("co\u00adoperate कि\u094dताब שָׁלוֹם") == snapshot("cooperate किताब שלום")


def test_full_width_and_ligatures_are_folded():
    assert fields.fold("ＡＢＣ１２ ﬁne") == "ABC12 fine"


def test_title_heading_and_path_words_are_kept_once():
    assert fields.about("Treaty of Lisbon", "§ 2 Terms", "root/deep_dir/LisbonTreaty.pdf") == snapshot(
        "treaty of lisbon 2 terms root deep dir lisbontreaty pdf"
    )


def test_a_path_lies_under_all_its_folders():
    assert fields.folders("r/a/b.txt") == ("r", "r/a", "r/a/b.txt")
    assert fields.folders("r") == ("r",)


@pytest.mark.parametrize("word", ["2026.4.10", "multi-agent", "sys.path_hooks", "foo@bar.com", "c++", "50%"])
def test_a_word_gives_the_same_mark_alone_and_in_a_sentence(word):
    """qmd #563: the query lost its dots, the index did not."""
    assert word in fields.values(f"We saw {word}, and then more.").marks.split()
    assert fields.values(word).marks.split()[0] == word


@given(st.text())
def test_any_text_has_values_and_folding_again_changes_nothing(text):
    fields.values(text)
    folded = fields.fold(text)
    assert fields.fold(folded) == folded


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_literal_folding_keeps_substrings_of_ascii(before, inner, after):
    inner = inner.encode("ascii", "ignore").decode()
    assert inner.lower() in fields.fold_literal(f"{before} {inner} {after}")


def _slowly(text: str) -> Values:
    """The values as the field's own functions give them, without any short cut."""
    text = fields.fold(text)
    runs = fields.grams(text)
    spaced = fields.spaced_words(text) if runs else text
    odd = " ".join(spaced.split())
    world = any(
        "\u0370" <= c <= "\u03ff" or "\u0400" <= c <= "\u052f" or "\u0600" <= c <= "\u06ff" for c in spaced
    )
    return Values(
        body="" if world else spaced,
        world=spaced if world else "",
        prefix=fields.prefixes(spaced) if fields.LATIN_BEYOND_ASCII.search(spaced) else "",
        grams=runs,
        parts=fields.parts(odd),
        marks=fields.marks(odd),
    )


@given(st.text(alphabet="aZéßÅςΣжЯع漢かｶ가ก\u1100\u1161\u0301\u00ad\u00a0ﬁ…’“–Ⅷ 1_-.#@=\n\x1c", max_size=40))
def test_the_short_cuts_change_no_value(text):
    """Words are remembered one by one, and signs decide which regular expressions run."""
    assert fields.values(text) == _slowly(text)


def test_a_text_without_a_sign_to_fold_is_as_folding_leaves_it():
    signs = [chr(code) for code in range(0x80, 0x11_0000) if not 0xD800 <= code <= 0xDFFF]
    calm = "".join(sign for sign in signs if not fields._signs(sign) & fields._TO_FOLD)
    assert len(calm) > 100_000
    assert fields.fold(calm) == calm
    assert fields.fold(calm[::-1]) == calm[::-1]
