import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.index import exact, fields
from pensieve_mcp.index.exact import LiteralPlace
from pensieve_mcp.index.lexical import LexicalIndex
from pensieve_mcp.index.types import PassageRecord

# Three documents, cut where no reader would cut.
DOCUMENTS = {
    1: ["Import sys.path_hooks first; then a=b, ", "50% of C++ files and the tran", "saction log is kept."],
    2: ["東京都は日本の", "首都です。Straße und ＷＩＤＥ words"],
    3: ["Nothing of that kind; Import sys, path hooks. 東 京"],
}


class Corpus:
    """A corpus in memory: both ports over DOCUMENTS."""

    def __init__(self, documents):
        self.texts, self.owner, self.starts = {}, {}, {}
        for document, pieces in documents.items():
            offset = 0
            for piece in pieces:
                passage = len(self.texts) + 1
                self.texts[passage], self.owner[passage] = piece, document
                self.starts.setdefault(document, []).append((offset, passage))
                offset += len(piece)
        self.documents = {document: "".join(pieces) for document, pieces in documents.items()}

    def records(self):
        return [
            PassageRecord(passage, self.owner[passage], f"root/{self.owner[passage]}.txt", "", "", text)
            for passage, text in self.texts.items()
        ]

    def given(self, wanted):
        return {one: self.texts[one] for one in wanted if one in self.texts}

    def scan(self, literal, documents, late):
        for document in sorted(self.documents) if documents is None else documents:
            if late():
                return
            folded = fields.fold_literal(self.documents[document])
            start = folded.find(literal)
            while start >= 0:
                passage = max(one for one in self.starts[document] if one[0] <= start)[1]
                yield LiteralPlace(passage, document, start)
                start = folded.find(literal, start + 1)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    corpus = Corpus(DOCUMENTS)
    index = LexicalIndex.open(tmp_path_factory.mktemp("exact"))
    writer = index.writer()
    writer.add(corpus.records())
    writer.commit(1)
    writer.close()
    return index, corpus


def search(opened, query, *, scan=True, texts=True, under=(), seconds=60.0):
    index, corpus = opened
    return exact.search(
        index,
        exact.literals(query),
        under=under,
        limit=50,
        deadline=time.monotonic() + seconds,
        texts=corpus.given if texts else None,
        scan=corpus.scan if scan else None,
    )


@pytest.mark.parametrize(
    ("query", "passages"),
    [
        ("sys.path_hooks", {1}),
        ("SYS.PATH_HOOKS", {1}),
        ("path_hook", {1}),
        ("a=b", {1}),
        ("C++", {2}),
        ("50%", {2}),
        ("日本の", {4}),
        ("STRASSE", {5}),
        ("wide", {5}),
        ("transaction log", {2}),
        ("日本の首都", {4}),
        ("then a=b, 50% of", set()),
        ('"then a=b, 50% of"', {1}),
        ("nowhere to be seen", set()),
        ("=", {1}),
        ("a=b, C++", {1, 2}),
        ("import sys", {1, 6}),
    ],
)
def test_a_literal_is_found_where_it_stands(opened, query, passages):
    found = search(opened, query)
    if passages:
        assert passages <= {hit[0] for hit in found.hits}
    if "," not in query:
        assert {hit[0] for hit in found.hits} == passages
    assert found.complete and not found.late


def test_commas_part_keywords_and_quotes_keep_them():
    assert exact.literals('foo, bar ,"a, b",,foo') == ("foo", "bar", "a, b")
    assert exact.literals("日本，東京") == ("日本", "東京")
    assert exact.literals(",") == (",",)


def test_more_different_keywords_come_first(opened):
    found = search(opened, "import sys, hooks, a=b")
    assert [hit[0] for hit in found.hits] == [1, 6]
    assert found.hits[0][2] > found.hits[1][2]


def test_folders_hold_for_literals(opened):
    assert {hit[0] for hit in search(opened, "import sys", under=("root/3.txt",)).hits} == {6}
    assert not search(opened, "saction", under=("root/3.txt",)).hits


def test_without_scanning_it_says_that_there_may_be_more(opened):
    assert not search(opened, "path_hook", scan=False).complete
    assert {hit[0] for hit in search(opened, "sys.path_hooks", scan=False).hits} == {1}


def test_when_the_time_is_over_it_says_so(opened):
    found = search(opened, "transaction", seconds=-1.0)
    assert found.late and not found.complete


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_stretch_of_a_document_is_found(opened, data):
    _, corpus = opened
    text = corpus.documents[data.draw(st.sampled_from(sorted(DOCUMENTS)))]
    start = data.draw(st.integers(0, len(text) - 1))
    literal = text[start : data.draw(st.integers(start + 1, len(text)))]
    if not literal.strip() or '"' in literal:
        return
    found = search(opened, f'"{literal}"')
    wanted = {place.passage_id for place in corpus.scan(fields.fold_literal(literal), None, lambda: False)}
    assert {hit[0] for hit in found.hits} == wanted
    assert found.complete


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=20))
def test_any_literal_is_answered_truly(opened, query):
    _, corpus = opened
    folded = {fields.fold_literal(one) for one in exact.literals(query)}
    wanted = {place.passage_id for one in folded if one for place in corpus.scan(one, None, lambda: False)}
    assert {hit[0] for hit in search(opened, query).hits} == wanted
