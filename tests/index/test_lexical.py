"""The word index alone. Complaint numbers are those of our log of other systems' issues."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.errors import IndexMismatch, StorageError
from pensieve_mcp.index.lexical import LexicalIndex
from pensieve_mcp.index.question import MAX_WORDS, analyse, quoted
from pensieve_mcp.index.types import PassageRecord

TEXTS = {
    1: "The release 2026.4.10 of sys.path_hooks is out",
    2: "Write to foo@bar.com about C++ and #tag, a=b and 50% and @nasa",
    3: "A multi-agent system calls getHTTPResponse on each path",
    4: "学校の図書館で本を読みました",
    5: "東京都は日本の首都です",
    6: "ภาษาไทยง่ายนิดเดียว",
    7: "Книги лежат на столах",
    8: "to be or not to be, that is the question",
    9: "हिन्दी भाषा में लिखा",
    10: "Çocukların kitapları masada duruyor",
    11: "Version 1.0.21 came before, in 2025",
    12: "Τα βιβλία είναι στο τραπέζι",
    13: "الكتب على الطاولات",
    14: "The client's don't-care flags: and/or switches",
    15: "서울은 대한민국의 수도이다",
    16: "Ｆｕｌｌ ｗｉｄｔｈ words",
    17: "NOT foo, said the parser",
}


def record(passage_id, text, *, document=None, path=None, title=""):
    document = passage_id if document is None else document
    return PassageRecord(passage_id, document, path or f"root/d{document}.txt", title, "", text)


@pytest.fixture
def index(tmp_path):
    opened = LexicalIndex.open(tmp_path / "lexical")
    writer = opened.writer()
    writer.add(record(number, text) for number, text in TEXTS.items())
    writer.commit(1)
    writer.close()
    return opened


def found(index, query, **options):
    return list(index.search(index.ask(query), **options).passage_ids)


@pytest.mark.parametrize(
    ("query", "passage"),
    [
        ("2026.4.10", 1),  # 4: dots lost from the query
        ("1.0.21", 11),
        ("path_hooks", 1),  # 5: underscores and hyphens lost
        ("sys.path_hooks", 1),
        ("multi-agent", 3),
        ("multi agent", 3),
        ("http response", 3),
        ("getHTTPResponse", 3),
        ("foo@bar.com", 2),  # 50: signs
        ("C++", 2),
        ("c++", 2),
        ("#tag", 2),
        ("@nasa", 2),
        ("a=b", 2),
        ("50%", 2),
        ("and/or", 14),
        ("client's", 14),
        ("client’s", 14),
        ("NOT foo", 17),  # 49: operators
        ("foo AND", 17),
        ("図書館", 4),  # 48, 51: scripts
        ("読", 4),
        ("日本の首都", 5),
        ("수도", 15),
        ("ภาษาไทย", 6),
        ("книга", 7),
        ("столы", 7),
        ("βιβλία", 12),
        ("الكتب", 13),
        ("हिन्दी", 9),
        ("çocuk", 10),
        ("cocuklarin", 10),
        ("kitaplar", 10),
        ("full width", 16),
        ("ＦＵＬＬ", 16),
        ("to be or not to be", 8),
        ('"to be or not to be"', 8),
    ],
)
def test_a_question_finds_its_passage_first(index, query, passage):
    assert found(index, query)[0] == passage


def test_all_words_come_before_some_words(tmp_path):
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    writer.add(
        [record(1, "apple apple apple apple"), record(2, "apple and a very long text on pears " + "x " * 80)]
    )
    writer.commit(1)
    writer.close()
    matches = index.search(index.ask("apple pear"))
    assert matches.passage_ids == (2, 1)
    assert (matches.with_all, matches.total) == (1, 2)


def test_a_phrase_is_words_in_a_row(index):
    assert found(index, '"path_hooks is out"') == [1]
    assert found(index, '"out is path_hooks"') == []
    assert found(index, "“system calls”") == [3]
    assert found(index, '"日本の首都"') == [5]


def test_a_lone_quote_is_a_sign():
    assert quoted('5" disk') == ()
    assert quoted('the "big one" and "small') == (("big", "one"),)


def test_title_and_path_words_are_found_but_weigh_less(tmp_path):
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    writer.add(
        [
            record(1, "nothing of it here", path="root/contracts/lease.txt", title="Rental agreement"),
            record(2, "the lease and the rental agreement of contracts"),
        ]
    )
    writer.commit(1)
    writer.close()
    for word in ("lease", "contracts", "rental"):
        assert found(index, word) == [2, 1]


def test_folders_filter_inside_retrieval(tmp_path):
    """14: a filter after the top k says `no results` falsely."""
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    writer.add(record(number, "common word", path=f"root/big/{number}.txt") for number in range(1, 501))
    writer.add([record(501, "a common word among many other words " + "x " * 50, path="root/small/only.txt")])
    writer.commit(1)
    writer.close()
    assert found(index, "common word", under=["root/small"], limit=10) == [501]
    assert found(index, "common word", under=["root/small/only.txt"], limit=10) == [501]
    assert found(index, "common word", under=["root/sm"], limit=10) == []
    assert index.documents_under(["root/small"]) == {501}


def test_wildcards_in_folder_names_are_letters(tmp_path):
    """2: `_` and `%` acted as wildcards."""
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    writer.add(
        [
            record(1, "word", path="root/a_b/x"),
            record(2, "word", path="root/a-b/x"),
            record(3, "word", path="root/%/x"),
        ]
    )
    writer.commit(1)
    writer.close()
    assert found(index, "word", under=["root/a_b"]) == [1]
    assert found(index, "word", under=["root/%"]) == [3]


def test_names_that_differ_only_in_case_or_signs_stay_apart(tmp_path):
    """2, 3: such documents pushed each other out."""
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    paths = ["root/README.md", "root/readme.md", "root/read me.md", "root/read_me.md", "root/🎉.md"]
    writer.add(record(number, "word", path=path) for number, path in enumerate(paths, 1))
    writer.commit(1)
    writer.close()
    for number, path in enumerate(paths, 1):
        assert found(index, "word", under=[path]) == [number]


def test_the_last_words_of_a_long_passage_are_found(tmp_path):
    """47: text beyond some length was not searchable."""
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    writer.add([record(1, "filler " * 3_000 + "needle at the very end")])
    writer.commit(1)
    writer.close()
    assert found(index, "needle") == [1]


def test_a_question_of_a_hundred_thousand_characters_is_answered_by_its_rarest_words(index):
    asked = index.ask(
        "the question " + " ".join(f"word{number}" for number in range(12_000)) + " 2026 release"
    )
    assert len(asked.words) <= MAX_WORDS
    assert asked.notes
    assert 1 in index.search(asked).passage_ids


def test_only_signs_match_nothing_quietly(index):
    assert found(index, "!!! ... ''\" ()") == []


def test_lone_surrogates_are_no_trouble(tmp_path):
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    writer.add([record(1, "broken \ud83d half")])
    writer.commit(1)
    writer.close()
    assert found(index, "half \udc00") == [1]


@settings(max_examples=150, deadline=None)
@given(
    query=st.one_of(
        st.text(max_size=80), st.text(alphabet="ab \"“”*?:^~()[]{}+-!&|\\/'NOTAND東京", max_size=40)
    )
)
def test_any_question_is_answered(shared_index, query):
    matches = shared_index.search(shared_index.ask(query))
    assert len(matches.passage_ids) == len(matches.document_ids) == len(matches.scores) <= matches.total
    assert set(matches.passage_ids) <= set(TEXTS)


@pytest.fixture(scope="module")
def shared_index(tmp_path_factory):
    opened = LexicalIndex.open(tmp_path_factory.mktemp("shared"))
    writer = opened.writer()
    writer.add(record(number, text) for number, text in TEXTS.items())
    writer.commit(1)
    writer.close()
    return opened


def test_scores_stay_below_the_bound_of_the_question(shared_index):
    for query in [
        "release of hooks",
        "日本の首都",
        "multi-agent getHTTPResponse",
        "kitaplar çocuk",
        "книги на столе",
    ]:
        asked = shared_index.ask(query)
        matches = shared_index.search(asked)
        assert matches.scores and max(matches.scores) <= asked.bound * 1.3


def test_an_unknown_word_makes_the_rest_a_weak_match(shared_index):
    known, unknown = shared_index.ask("release"), shared_index.ask("release qqqzzz")
    assert unknown.bound > 2 * known.bound
    assert unknown.unknown == ("qqqzzz",)


def test_a_second_writer_is_refused_in_words(index):
    writer = index.writer()
    with pytest.raises(StorageError) as refused:
        index.writer()
    assert refused.value.slug == "index_busy"
    assert "another process" in refused.value.message and refused.value.hint
    writer.close()
    index.writer().close()


def test_what_was_not_committed_is_lost_and_the_rest_stays(index):
    writer = index.writer()
    writer.add([record(90, "uncommitted")])
    writer.close()
    index.refresh()
    assert found(index, "uncommitted") == []
    assert index.generation == 1 and index.passages == len(TEXTS)


def test_a_reader_sees_a_commit_and_its_number(index):
    reader = LexicalIndex.open(index.folder, read_only=True)
    writer = index.writer()
    writer.remove_documents([1])
    writer.add([record(91, "a fresh thing")])
    writer.commit(7)
    writer.close()
    reader.refresh()
    assert (reader.generation, reader.passages) == (7, len(TEXTS))
    assert found(reader, "fresh") == [91] and 1 not in found(reader, "release")


def test_a_missing_index_says_what_to_do(tmp_path):
    with pytest.raises(IndexMismatch) as missing:
        LexicalIndex.open(tmp_path / "none", read_only=True)
    assert missing.value.slug == "index_missing" and "Build" in missing.value.hint


def test_an_index_of_another_version_is_refused_with_the_reason(index):
    file = index.folder / "meta.json"
    meta = json.loads(file.read_text())
    meta["schema"] = [one for one in meta["schema"] if one["name"] != "marks"]
    file.write_text(json.dumps(meta))
    with pytest.raises(IndexMismatch, match="marks"):
        LexicalIndex.open(index.folder)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b"\x00\xff"])
def test_a_damaged_description_says_to_build_again(index, damage):
    (index.folder / "meta.json").write_bytes(damage)
    with pytest.raises(StorageError) as damaged:
        LexicalIndex.open(index.folder)
    assert "build the index again" in damaged.value.hint


def test_a_missing_segment_says_to_build_again(index):
    for file in index.folder.glob("*.term"):
        file.write_bytes(b"")
    with pytest.raises(StorageError) as damaged:
        found(LexicalIndex.open(index.folder), "release")
    assert "build the index again" in damaged.value.hint


def test_near_spellings_of_an_unknown_word_are_found(index):
    assert 3 in index.near("systen")
    assert index.split_word("pathsystem") == "path system"
    assert index.split_word("qqqqqqqq") == ""


class Nothing:
    """A vocabulary that knows no word."""

    def split(self, text):
        return [(word, word, word) for word in text.split()]

    def holding(self, field, form):
        return 0

    def size(self):
        return 0


@given(st.text())
def test_a_question_to_an_empty_index_is_analysed(text):
    asked = analyse(text, Nothing())
    assert asked.terms == () and asked.bound >= 0


def test_passages_replaced_again_and_again_keep_a_positive_bound(tmp_path):
    """tantivy counts removed passages in a word's frequency until it merges."""
    index = LexicalIndex.open(tmp_path)
    writer = index.writer()
    for number in range(1, 9):
        writer.remove_documents([1])
        writer.add([record(number, "alpha thing", document=1)])
    writer.commit(1)
    writer.close()
    asked = index.ask("alpha thing")
    assert asked.bound > 0 and index.search(asked).passage_ids == (8,)
