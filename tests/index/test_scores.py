"""A score tells how much of the question is there, whatever script it is written in and however few passages are."""

from pathlib import Path

import pytest

from pensieve_mcp.index.encoders import open_encoder
from pensieve_mcp.index.index import Index
from pensieve_mcp.index.lexical import LexicalIndex
from pensieve_mcp.index.types import PassageRecord, SearchRequest

ENGLISH = (
    "Report {n} tells of bridges and the water below, of {n} barges that carry rye, and of the ferry at noon."
)
RUSSIAN = "В отчёте {n} говорится о мостах и воде, о баржах числом {n}, что везут рожь, и о пароме в полдень."
PAGES = {
    901: "Пожарная служба. В подвале насос протекает уже неделю, и никто не пришёл, нужна замена.",
    902: "会議は五月の第二週に東京で開かれます。議題は来年の予算と人員です。",
    903: "ينص عقد الإيجار على دفع المبلغ كل شهر، ومدة العقد سنة واحدة قابلة للتجديد.",
    904: "The Ångström is a unit of length, named after a man of Uppsala; 10 Å are a nanometre, α is none.",
    905: "Η σύμβαση μίσθωσης ορίζει το ενοίκιο στα εξακόσια ευρώ κάθε μήνα, και τη διάρκεια σε ένα έτος.",
    906: "서울에서 다음 달에 회의가 열립니다. 예산이 의제입니다.",
    907: "สัญญากำหนดค่าเช่าเดือนละหกร้อยบาทตลอดปี",
    908: "Kira sözleşmesi değişti: şu yıl için çocuk odası da ücretsiz kullanılır, böylece aile rahat eder.",
    909: "The turbine hall is closed on Mondays, and its keys hang in the porter's lodge behind the door.",
}
ASKED = {
    "насос протекает": 901,
    "会議は五月": 902,
    "東京": 902,
    "عقد الإيجار": 903,
    "Ångström": 904,
    "ενοίκιο": 905,
    "회의": 906,
    "ค่าเช่า": 907,
    "çocuk odası": 908,
    "turbine keys": 909,
}


def filled(folder: Path, filler: str) -> Index:
    index = Index.open(
        folder / "index",
        opener=lambda spec: open_encoder("hashing:64"),
        texts=lambda wanted: {one: PAGES[one] for one in wanted if one in PAGES},
        second_stage=False,
    )
    texts = {number: filler.format(n=number) for number in range(1, 301)} | PAGES
    with index.writer() as writer:
        writer.add(PassageRecord(n, n, f"root/{n}.txt", "", "", text) for n, text in texts.items())
        writer.commit(1)
    return index


@pytest.fixture(scope="module")
def english(tmp_path_factory) -> Index:
    return filled(tmp_path_factory.mktemp("english"), ENGLISH)


@pytest.fixture(scope="module")
def russian(tmp_path_factory) -> Index:
    return filled(tmp_path_factory.mktemp("russian"), RUSSIAN)


@pytest.mark.parametrize("folder", ["english", "russian"])
@pytest.mark.parametrize("question", ASKED)
def test_a_passage_with_all_words_has_a_score_like_one_in_english(request, folder, question):
    """A second newcomer: right hits at 0.00, since a field's lengths were compared with passages that lack it."""
    index = request.getfixturevalue(folder)
    first = index.search(SearchRequest((question,), "lexical", limit=5)).hits[0]
    assert first.passage_id == ASKED[question]
    assert 0.3 <= first.score <= 1


@pytest.mark.parametrize("folder", ["english", "russian"])
@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_scores_are_told_anew_and_the_order_stays(request, monkeypatch, folder, mode):
    index = request.getfixturevalue(folder)
    questions = [
        *ASKED,
        "bridges насос",
        "баржах 東京 rye",
        "Ångström qqqzzz",
        "water below the ferry",
        "мостах и воде",
    ]
    told = {one: index.search(SearchRequest((one,), mode, limit=40)).hits for one in questions}
    monkeypatch.setattr(LexicalIndex, "fair", lambda self, asked, scores: dict(scores))
    for question, hits in told.items():
        before = index.search(SearchRequest((question,), mode, limit=40)).hits
        assert [hit.passage_id for hit in hits] == [hit.passage_id for hit in before], question
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True) and max(scores, default=0) <= 1
        if (folder, question) in (("english", "water below the ferry"), ("russian", "мостах и воде")):
            assert [round(hit.score, 3) for hit in before] == pytest.approx(scores, abs=0.03)


def test_half_of_the_words_is_less_than_all_of_them(english):
    def score(question):
        return english.search(SearchRequest((question,), "lexical", limit=5)).hits[0].score

    assert score("насос протекает") > 1.5 * score("насос qqqzzz") > 0.15


def test_a_folder_of_one_language_pays_for_fair_scores_once_a_commit(english, monkeypatch):
    """Fault: every search asked for each word once more, which took lexical searches four to eight times as long."""
    asked, within, fair, run = [], [], LexicalIndex.fair, LexicalIndex._run

    def counted(self, *arguments):
        within.append(True)
        try:
            return fair(self, *arguments)
        finally:
            within.pop()

    def ran(self, *arguments):
        asked.extend(within)
        return run(self, *arguments)

    monkeypatch.setattr(LexicalIndex, "fair", counted)
    monkeypatch.setattr(LexicalIndex, "_run", ran)
    monkeypatch.setattr(english._lexical, "_shares", (None, {}))
    english.search(SearchRequest(("bridges and barges of rye",), "lexical", limit=30))
    first = len(asked)
    english.search(SearchRequest(("the ferry at noon",), "lexical", limit=30))

    assert first > 0 and len(asked) == first
