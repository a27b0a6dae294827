import itertools

from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.index.fusion import Fused, fuse, interleave, lexical_power, lexical_weight, rerank

numbers = st.dictionaries(st.integers(1, 30), st.floats(0.0, 1.0), max_size=12)


def test_weights_are_the_measured_ones():
    """0.8 beside the static table, 0.5 beside MiniLM: see the constants' comments."""
    assert lexical_weight(0.0, 1.0) == 0.8
    assert round(lexical_weight(1.0, 1.0), 9) == 0.5


def test_beside_vectors_of_sentences_a_weak_keyword_match_gives_way():
    lexical, dense = {1: 0.42, 2: 0.1}, {1: 0.2, 2: 0.5}
    power = lexical_power(1.0, 1.0, False)
    assert [one.passage_id for one in fuse(lexical, dense, 0.5)] == [1, 2]
    assert [one.passage_id for one in fuse(lexical, dense, 0.5, power=power)] == [2, 1]
    assert fuse(lexical, dense, 0.5, power=power)[0].lexical == 0.1  # told as it was
    assert lexical_power(0.0, 1.0, False) == lexical_power(1.0, 0.1, False) == 1.0
    assert lexical_power(1.0, 1.0, True) == 1.0  # a rare word would else come behind what is about anything


def test_a_script_the_encoder_does_not_know_leaves_words_alone():
    assert lexical_weight(1.0, 0.0) == 1.0


def test_a_passage_of_one_side_keeps_that_sides_score():
    fused = {one.passage_id: one for one in fuse({1: 0.5}, {2: 0.9}, 0.8)}
    assert fused[1].score == 0.8 * 0.5
    assert round(fused[2].score, 9) == round(0.2 * 0.9, 9)


def test_several_questions_take_turns():
    """Otherwise the question with the commonest words fills the list."""
    loud = [Fused(passage, 0.9, 0.9, 0.0) for passage in range(1, 6)]
    quiet = [Fused(passage, 0.1, 0.1, 0.0) for passage in range(11, 16)]
    assert [one.passage_id for one in interleave([loud, quiet], 4)] == [1, 11, 2, 12]


def test_a_passage_of_two_questions_keeps_its_better_score():
    assert interleave([[Fused(1, 0.2, 0.2, 0.0)], [Fused(1, 0.7, 0.7, 0.0)]], 5)[0].score == 0.7


def test_candidates_the_time_did_not_suffice_for_follow_the_reranked():
    head = [Fused(1, 0.5, 0.5, 0.1), Fused(2, 0.4, 0.4, 0.1), Fused(3, 0.3, 0.3, 0.1)]
    again = rerank(head, {1: 0.0, 2: 0.9}, [Fused(4, 0.2, 0.2, 0.1)])
    assert [one.passage_id for one in again] == [2, 1, 3, 4]


@given(numbers, numbers, st.floats(0.0, 1.0), numbers)
def test_nothing_is_lost_and_scores_never_rise(lexical, dense, weight, true):
    fused = fuse(lexical, dense, weight)
    assert {one.passage_id for one in fused} == set(lexical) | set(dense)
    head, rest = fused[:5], fused[5:]
    again = rerank(head, {one.passage_id: true.get(one.passage_id, 0.0) for one in head[:3]}, rest)
    assert sorted(one.passage_id for one in again) == sorted(one.passage_id for one in fused)
    for ranked in (fused, again):
        assert all(one.score >= other.score for one, other in itertools.pairwise(ranked))


@given(
    st.lists(st.lists(st.integers(1, 20), unique=True, max_size=8), min_size=1, max_size=4),
    st.integers(0, 30),
)
def test_interleaving_names_each_passage_once(lists, limit):
    ranked = [[Fused(one, 1 / one, 0.0, 0.0) for one in ids] for ids in lists]
    found = [one.passage_id for one in interleave(ranked, limit)]
    assert len(found) == len(set(found)) == min(limit, len({one for ids in lists for one in ids}))
