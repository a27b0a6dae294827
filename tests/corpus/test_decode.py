"""Bytes to text: the encodings of real files, and nothing lost in silence."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.corpus.decode import (
    CHUNK_BYTES,
    SMALL_BYTES,
    TextStream,
    clean,
    codec_of,
    decode,
    sniff_binary,
)
from pensieve_mcp.corpus.types import Unreadable

SAMPLES = {
    "utf-8": "Пчёлы and bees, 蜂 🐝",
    "cp1252": "“Größe” – naïve café, la reine est marquée",
    "cp1251": "Пчёлы вернулись с первым взятком",
    "koi8_r": "Пчёлы вернулись с первым взятком",
    "cp866": "Пчёлы вернулись с первым взятком",
    "cp1253": "Οι μέλισσες επέστρεψαν στην κυψέλη",
    "cp1255": "בתי הכוורת מלאים בדבש השנה",
    "cp1250": "Včely letos přinesly hodně medu, ještě řepka kvete žlutě",
    "cp932": "春の山で菜の花の蜜を集めた。",
    "euc_jp": "春の山で菜の花の蜜を集めた。",
    "iso2022_jp": "春の山で菜の花の蜜を集めた。",
    "gbk": "今年蜂蜜产量很高，蜂群采蜜归来",
    "big5": "今年的蜂蜜很多，蜂群採蜜歸來",
    "euc_kr": "벌들이 꿀을 모아 왔다",
    "utf-16": "with a mark 蜂",
    "utf-16-le": "no byte order mark here",
    "utf-16-be": "Пчёлы вернулись с первым взятком",
    "utf-32-le": "no byte order mark here",
    "utf-8-sig": "with a mark 蜂",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_one_sentence_suffices(encoding: str) -> None:
    text = SAMPLES[encoding]

    got = decode(text.encode(encoding))

    assert (got.text, got.replaced) == (text, 0)


def test_a_file_ascii_for_long_may_turn_latin_at_its_end() -> None:
    data = b"plain words\n" * (SMALL_BYTES // 10) + "la reine est marquée\n".encode("cp1252")

    stream = TextStream(io.BytesIO(data))
    text = "".join(stream)

    assert stream.encoding.name == "cp1252" and text.endswith("la reine est marquée\n")


def test_a_character_across_two_reads_is_whole() -> None:
    data = b"x" * (CHUNK_BYTES - 1) + "é\r\n".encode() * CHUNK_BYTES * 2

    text = "".join(TextStream(io.BytesIO(data)))

    assert text.count("é") == CHUNK_BYTES * 2 and text.count("\n") == CHUNK_BYTES * 2 and "\r" not in text


def test_utf8_with_a_few_wounds_stays_utf8_and_counts_them() -> None:
    data = ("Größe und Weite, schöne Blüten überall. " * 20).encode() + b"\xff broken"

    got = decode(data)

    assert (got.encoding, got.replaced) == ("utf-8", 1)


def test_latin1_is_windows_1252() -> None:
    assert codec_of("ISO-8859-1") == codec_of("latin1") == "cp1252"
    assert decode(b"costs 5 \x80 \x96 caf\xe9", declared="iso-8859-1").text == "costs 5 € – café"


def test_the_declared_charset_and_the_persons_fallback_count_after_utf8() -> None:
    polish = "Pszczoły wróciły z łąki".encode("iso8859_2")

    assert decode(polish, declared="iso-8859-2").text == decode(polish, fallback="iso-8859-2").text
    assert decode("Größe".encode(), declared="iso-8859-1").text == "Größe"


@pytest.mark.parametrize(
    "label", ["base64", "rot13", "zlib", "idna", "nonsense", "../../x", "", None, "utf-7"]
)
def test_a_label_that_is_no_charset_is_not_used(label: str | None) -> None:
    assert codec_of(label) is None


@pytest.mark.parametrize(
    "head",
    [
        b"\x89PNG\r\n\x1a\n123",
        b"%PDF-1.7\n",
        b"PK\x03\x04abc",
        b"text\0text",
        b"\x01\x02\x03\x04\x05abc",
        b"\0\0\0\0",
    ],
)
def test_what_is_no_text_is_refused_with_its_reason(head: bytes) -> None:
    assert sniff_binary(head)
    with pytest.raises(Unreadable, match="binary"):
        decode(head)


def test_a_log_padded_with_nuls_after_a_crash_is_still_a_log() -> None:
    assert decode(b"last words\n" + b"\0" * 4_096).text == "last words\n"


def test_control_characters_go_and_words_stay_apart() -> None:
    got = clean("end\x0cChapter \x1b[31mERROR\x1b[0m a\x07b\tc\x85d é\x9f \ud800")

    assert got == "end Chapter ERROR ab\tc d é \ufffd"


@given(st.binary(max_size=400))
def test_any_bytes_give_text_or_a_reason(data: bytes) -> None:
    try:
        text = decode(data).text
    except Unreadable as error:
        assert error.reason == "binary"
        return
    text.encode("utf-8")
    assert not any(c < " " and c not in "\t\n" for c in text)


@given(
    st.text(
        alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t"),
        max_size=300,
    )
)
def test_utf8_text_comes_back_as_it_was(text: str) -> None:
    """A leading U+FEFF is a byte order mark; control characters and carriage returns are another test's."""
    if text.startswith("\ufeff"):
        return
    assert decode(text.encode()).text == text
