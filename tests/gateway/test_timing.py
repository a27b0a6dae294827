"""When a deletion is applied: by price, by pressure, at once; and never differently for the same conversation."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.gateway.timing import Policy, Timing

SIZES = [100, 50, 10_000, 50, 100, 50, 5_000, 50, 100, 50, 100]
REQUESTS = [1, 3, 5, 7, 9, 11]


def planned(policy: Policy, forgotten: dict[int, set[int]], sizes: list[int] = SIZES) -> Timing:
    return lived(policy, sizes, REQUESTS, lambda place: forgotten.get(place, set()))


def lived(policy: Policy, sizes: list[int], requests: list[int], at: Callable[[int], set[int]]) -> Timing:
    """The conversation up to its last request; `at(place)` stands forgotten in the one made there."""
    timing = Timing(policy)
    done = 0
    for place in requests:
        for size in sizes[done:place]:
            timing.add(size)
        done = place
        timing.request(at(place))
    return timing


def test_what_pays_is_applied_and_what_does_not_waits() -> None:
    soon = planned(Policy("batched"), {5: {2}, 7: {2}, 9: {2}, 11: {2}})
    assert soon.applied == {2} and soon.decisions[0].request == 3
    late = planned(Policy("batched", horizon=0), {11: {1}})
    assert late.waiting == {1} and not late.applied
    assert (
        late.decisions[0].cost > late.decisions[0].saving
        and "cached tokens behind it" in late.decisions[0].why
    )


def test_a_full_window_applies_whatever_it_costs() -> None:
    full = planned(Policy("batched", horizon=0, window_tokens=18_000), {11: {1}})

    assert full.applied == {1} and "80 % of the window" in full.decisions[0].why


def test_a_crowded_window_is_not_rewritten_for_a_small_deletion_but_for_a_large_one() -> None:
    policy = Policy("batched", horizon=0, window_tokens=20_000, least_tokens=4_000)
    small, large = planned(policy, {11: {1}}), planned(policy, {9: {6}, 11: {6}})

    assert small.waiting == {1} and large.applied == {6}


def test_the_threshold_wants_enough_at_once() -> None:
    policy = Policy("threshold", least_tokens=12_000)
    few = planned(policy, {7: {2}, 9: {2}, 11: {2}})
    both = planned(policy, {7: {2}, 9: {2, 6}, 11: {2, 6}})

    assert few.waiting == {2} and both.applied == {2, 6}


def test_what_was_restored_is_decided_anew_when_it_is_deleted_again() -> None:
    policy = Policy("batched", horizon=0)
    again = planned(policy, {3: {2}, 5: set(), 7: set(), 9: set(), 11: {2}})

    assert again.decisions[0].applied and not again.decisions[1].applied
    assert again.applied == set() and again.waiting == {2}


@given(
    st.lists(st.integers(1, 20_000), min_size=11, max_size=11),
    st.sets(st.integers(0, 8)),
    st.sampled_from(["eager", "batched", "threshold"]),
)
def test_a_longer_conversation_keeps_the_decisions_of_a_shorter_one(
    sizes: list[int], doomed: set[int], name: str
) -> None:
    def at(place: int) -> set[int]:
        return {item for item in doomed if item + 2 < place}

    policy = Policy(name, least_tokens=5_000)  # type: ignore[arg-type]
    shorter = lived(policy, sizes, REQUESTS[:-1], at)
    longer = lived(policy, sizes, REQUESTS, at)

    assert longer.decisions[: len(shorter.decisions)] == shorter.decisions
    assert shorter.applied <= longer.applied
    assert longer.applied | longer.waiting == at(REQUESTS[-1])


def test_a_copy_goes_its_own_way() -> None:
    timing = planned(Policy("batched", horizon=0), {11: {1}})
    copy = timing.copy()
    copy.add(100)
    copy.request({1, 2})

    assert len(copy.decisions) == 2 and len(timing.decisions) == 1 and timing.waiting == {1}


def test_an_old_deletion_that_does_not_pay_holds_up_no_young_one() -> None:
    policy = Policy("batched", horizon=3)
    both = planned(policy, {9: {1, 6}, 11: {1, 6}})

    assert both.applied == {6} and both.waiting == {1}
    assert (both.decisions[0].waiting, both.decisions[0].taken) == (2, 1)
