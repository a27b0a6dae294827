"""Short names of host results: constant, and never another's."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.ledger.hostnames import HostNames, host_handle


@cache
def alike(digits: int, count: int) -> tuple[tuple[str, str], ...]:
    """Pairs of call ids that share so many digits, found by trying."""
    first: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for number in range(60_000):
        call_id = f"toolu_{number:06}"
        other = first.setdefault(host_handle(call_id, digits), call_id)
        if other != call_id:
            pairs.append((other, call_id))
            if len(pairs) == count:
                break
    assert len(pairs) == count
    return tuple(pairs)


CALLS = [call_id for digits in (4, 5, 6) for pair in alike(digits, 6) for call_id in pair]
conversations = st.lists(st.sampled_from(CALLS), max_size=20)


def named(calls: list[str]) -> tuple[HostNames, dict[str, str]]:
    """The names of these calls, said in this order; number is the place."""
    names, handles = HostNames(), dict[str, str]()
    for number, call_id in enumerate(calls):
        handle = names.name(call_id, number)
        if handle is not None:
            handles[call_id] = handle
    return names, handles


@given(conversations)
def test_a_name_is_one_results_and_stays_while_the_conversation_grows(calls: list[str]) -> None:
    names, handles = named(calls)
    for upto in range(len(calls)):
        earlier = named(calls[:upto])[1]
        assert earlier == {call_id: handles[call_id] for call_id in earlier}
    assert len(set(handles.values())) == len(handles) == len(set(calls))
    for call_id, handle in handles.items():
        assert host_handle(call_id, len(handle) - 1) == handle
        assert calls.index(call_id) in names.find(handle)
        assert named(calls[: calls.index(call_id) + 1])[0].find(handle) == [calls.index(call_id)]


@given(conversations, conversations)
def test_where_conversations_meet_a_name_means_all_that_have_it_and_a_longer_one_its_own(
    left: list[str], right: list[str]
) -> None:
    """As in the ledger, which holds the sub-agents of one episode together."""
    both, all_calls = HostNames(), list(dict.fromkeys(left + right))
    for number, call_id in enumerate(all_calls):
        both.name(call_id, number)
    for calls in (left, right):
        for call_id, handle in named(calls)[1].items():
            assert all_calls.index(call_id) in both.find(handle)
            own = both.longer(handle)
            assert set(own) == set(both.find(handle))
            for number, longer in own.items():
                assert both.find(longer) == [number] and longer.startswith(handle)


def test_a_name_that_nobody_has_means_nothing() -> None:
    names, _ = named(CALLS)

    assert names.find("h") == names.find("hzzzz") == names.find("h" + "0" * 32) == []
    assert names.longer("hzzzz") == {}
