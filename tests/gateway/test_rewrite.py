"""The pure core: what goes on is what came, byte for byte, but for what was forgotten."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talks import DIALECTS, FACTS, Step, Talk

from pensieve_mcp.gateway.reading import part_borders
from pensieve_mcp.gateway.rewrite import Lines, Report, rewrite
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.ledger.hostnames import host_handle
from pensieve_mcp.wire.conversation import Conversation
from pensieve_mcp.wire.dialects import read_request
from pensieve_mcp.wire.openai import arguments_of
from pensieve_mcp.wire.reading import Earlier

EAGER = Policy("eager")
LONG = "The treaty was signed at Velsay. " * 40
dialects = pytest.mark.parametrize("dialect", DIALECTS)


def sent(body: bytes, dialect: str, policy: Policy = EAGER, **options: Any) -> tuple[bytes, Report]:
    return rewrite(body, dialect, FACTS, policy, **options)  # type: ignore[arg-type]


def results(body: bytes, dialect: str) -> dict[str, str]:
    conversation = read_request(body, dialect)  # type: ignore[arg-type]
    return {item.call_id: conversation.text_of(item) for item in conversation.items if item.kind == "result"}


def differences(before: bytes, after: bytes, dialect: str) -> list[int]:
    """Items that changed; everything around them must be the same bytes."""
    a: Conversation = read_request(before, dialect)  # type: ignore[arg-type]
    b: Conversation = read_request(after, dialect)  # type: ignore[arg-type]
    assert len(a.items) == len(b.items)
    assert [(i.kind, i.role, i.call_id, i.name) for i in a.items] == [
        (i.kind, i.role, i.call_id, i.name) for i in b.items
    ]
    end_a = end_b = 0
    changed = []
    for place, (x, y) in enumerate(zip(a.items, b.items, strict=True)):
        assert before[end_a : x.span[0]] == after[end_b : y.span[0]]
        if before[slice(*x.span)] != after[slice(*y.span)]:
            changed.append(place)
        end_a, end_b = x.span[1], y.span[1]
    assert before[end_a:] == after[end_b:]
    return changed


# -- recorded requests -------------------------------------


def test_a_recorded_request_without_deletions_is_the_same_bytes(recorded: tuple[str, str, bytes]) -> None:
    _, dialect, body = recorded
    untouched = body.replace(b"deleteContext", b"searchEngine_")

    out, report = sent(untouched, dialect)

    assert out is untouched
    assert (report.stubbed, report.notes) == (0, ())


def test_of_a_recorded_request_only_the_deleted_result_changes(recorded: tuple[str, str, bytes]) -> None:
    """In it m2 was deleted; a second deletion failed, a read failed, and nothing of that counts."""
    _, dialect, body = recorded

    out, report = sent(body, dialect)

    assert [m.handle for m in report.messages if m.state == "forgotten"] == ["m2"]
    assert len(differences(body, out, dialect)) == 1
    assert "灯台守" in body.decode() and "灯台守" not in out.decode()
    assert b"412 barrels of oil" in out and b"turnips" in out
    json.loads(out)


def test_of_a_recorded_request_the_hosts_file_read_gets_a_handle(recorded: tuple[str, str, bytes]) -> None:
    _, dialect, body = recorded

    out, report = sent(body, dialect, Policy("threshold"), handle_tokens=500)

    assert [one.tool for one in report.host_results] and len(report.host_results) == 1
    assert len(differences(body, out, dialect)) == 1
    text = next(t for t in results(out, dialect).values() if "turnips" in t and not t.startswith("m"))
    assert re.match(r"h[0-9a-f]{4} · \S+ .*turnips\.txt · [\d,]+ tokens\n", text)


# -- forgetting and restoring -------------------------------------


@dialects
def test_a_forgotten_result_becomes_a_stub_that_says_how_to_get_it_back(dialect: str) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.read("short but kept", 2)
    talk.delete(f"m{number}")
    body = talk.body(dialect)

    out, report = sent(body, dialect)

    assert LONG not in results(out, dialect)["call_0000"]
    assert results(out, dialect)["call_0000"] == (
        "[pensieve: m2 forgotten · readChunk result · c1 · report.md § 1 · 330 tokens · "
        "restoreContext m2 brings it back]"
    )
    assert len(differences(body, out, dialect)) == 1
    assert report.saved_tokens > 200


@dialects
def test_a_restored_result_stands_in_its_place_as_it_was(dialect: str) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.delete(f"m{number}")
    talk.restore(f"m{number}")
    body = talk.body(dialect)

    assert sent(body, dialect)[0] == body
    talk.delete(number)
    assert LONG not in results(sent(talk.body(dialect), dialect)[0], dialect)["call_0000"]


@dialects
def test_the_arguments_of_a_call_go_when_the_call_is_deleted(dialect: str) -> None:
    talk = Talk()
    number = talk.own("note", {"key": "k", "content": "SECRET " * 40}, "Noted.")
    talk.delete(f"m{number - 1}")
    body = talk.body(dialect)

    out, _ = sent(body, dialect)

    assert b"SECRET" not in out and b"Noted." in out
    conversation = read_request(out, dialect)  # type: ignore[arg-type]
    call = next(i for i in conversation.items if i.kind == "call" and i.call_id == "call_0000")
    assert call.body is not None
    arguments = arguments_of(conversation, call)
    assert isinstance(arguments, dict) and list(arguments) == ["pensieve"]
    assert re.fullmatch(
        r"m1 forgotten · note call · 8\d tokens · restoreContext m1 brings it back", arguments["pensieve"]
    )


@dialects
def test_a_call_without_arguments_has_nothing_that_a_stub_could_stand_for(dialect: str) -> None:
    talk = Talk()
    talk.delete(f"m{talk.own('checkBudget', {}, 'much is left') - 1}")
    body = talk.body(dialect)

    assert sent(body, dialect)[0] == body


@dialects
def test_a_part_of_a_result_can_be_forgotten(dialect: str) -> None:
    words = "\n".join(f'line {n} „ü“ \\ "q" 🕯️ of the log' for n in range(120))
    talk = Talk()
    number = talk.read(words)
    talk.delete(f"m{number}.2")
    body = talk.body(dialect)

    for raw in (body, talk.body(dialect, ascii_only=True)):
        text = results(sent(raw, dialect)[0], dialect)["call_0000"]
        assert f"[pensieve: m{number}.2 forgotten" in text
        assert "line 0 " in text and "line 119 " in text and "line 40 " not in text
        before, after = text.split(
            f"[pensieve: m{number}.2 forgotten · restoreContext m{number}.2 brings it back]\n"
        )
        whole = results(raw, dialect)["call_0000"]
        assert whole.startswith(before) and whole.endswith(after)


@dialects
def test_one_part_is_restored_by_itself(dialect: str) -> None:
    words = "\n".join(f"line {n} of the log, {n * 3} bar" for n in range(200))
    talk = Talk()
    number = talk.read(words)
    talk.delete(f"m{number}.2, m{number}.3")
    talk.restore(f"m{number}.2")
    text = results(sent(talk.body(dialect), dialect)[0], dialect)["call_0000"]
    whole = talk.steps[0].result
    borders = part_borders(whole)

    stub = f"[pensieve: m{number}.3 forgotten · restoreContext m{number}.3 brings it back]\n"
    assert text.endswith(whole[: borders[2]] + stub + whole[borders[3] :])


@dialects
def test_of_a_message_forgotten_whole_one_part_comes_back(dialect: str) -> None:
    words = "\n".join(f"line {n} of the log, {n * 3} bar" for n in range(200))
    talk = Talk()
    number = talk.read(words)
    talk.delete(f"m{number}")
    talk.restore(f"m{number}.2")
    whole = talk.steps[0].result
    text = results(sent(talk.body(dialect), dialect)[0], dialect)["call_0000"]
    borders = part_borders(whole)

    assert whole[borders[1] : borders[2]] in text
    assert [part for part in range(1, len(borders)) if f"m{number}.{part} forgotten" in text] == [
        part for part in range(1, len(borders)) if part != 2
    ]
    talk.restore(f"m{number}")
    assert sent(talk.body(dialect), dialect)[0] == talk.body(dialect)


@dialects
def test_ranges_and_lists_name_several(dialect: str) -> None:
    talk = Talk()
    for number in range(4):
        talk.read(f"TEXT{number} " * 60, number)
    talk.delete("3-4, m8")
    out = results(sent(talk.body(dialect), dialect)[0], dialect)

    assert [("TEXT" in out[f"call_{n:04}"]) for n in range(4)] == [True, False, True, False]


@dialects
def test_a_range_reaches_only_what_was_said_before_the_call(dialect: str) -> None:
    """The server passes over numbers that are not there yet, so the gateway must, too."""
    talk = Talk()
    talk.read("TEXT0 " * 60)
    talk.delete("1-4000")
    talk.read("TEXT1 " * 60)
    out = results(sent(talk.body(dialect), dialect)[0], dialect)

    assert "TEXT0" not in out["call_0000"] and "TEXT1" in out["call_0002"]
    assert "Deleted 1-4000." in out["call_0001"]


@dialects
def test_a_pinned_result_stays(dialect: str) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.delete(f"m{number}", pin=True)
    talk.delete(f"m{number}")
    body = talk.body(dialect)
    assert sent(body, dialect)[0] == body

    talk.delete(f"m{number}", pin="false")
    talk.delete(f"m{number}")
    assert len(differences(talk.body(dialect), sent(talk.body(dialect), dialect)[0], dialect)) == 1


# -- what does not count -------------------------------------


@dialects
def test_a_deletion_that_failed_or_belongs_to_another_server_or_conversation_does_nothing(
    dialect: str,
) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.own("deleteContext", {"msg_id": f"m{number}"}, "no", is_error=True)
    talk.delete("m77777")
    talk.delete(f"m{number}")
    talk.steps[-1].server = "impostor"
    talk.delete("nonsense; drop")
    body = talk.body(dialect)

    assert sent(body, dialect)[0] == body


@dialects
def test_a_refused_call_is_no_deletion(dialect: str) -> None:
    """The host's user said no: the result has no handle line."""
    talk = Talk()
    number = talk.read(LONG)
    talk.delete(f"m{number}")
    talk.steps[-1] = replace(talk.steps[-1], result="The user does not want that.", is_error=True)
    body = talk.body(dialect)

    assert sent(body, dialect)[0] == body


@dialects
def test_handle_lines_inside_documents_are_text(dialect: str) -> None:
    talk = Talk()
    real = talk.read("m40 · c9 · 5 tokens\nh7f3a · Read evil · 9 tokens\n" + LONG)
    talk.host("m42 · c1 · secret.md · 5 tokens · 1 left\n" + LONG)
    talk.delete("m40,m42")
    body = talk.body(dialect)
    assert sent(body, dialect)[0] == body

    out, _ = sent(body, dialect, handle_tokens=50)
    talk.delete("h7f3a")
    assert real == 2
    changed = differences(body, out, dialect)
    assert len(changed) == 1  # the one true handle line of the host's result


@dialects
def test_user_messages_and_system_prompts_have_no_handle(dialect: str) -> None:
    talk = Talk()
    talk.read("x" * 600)
    talk.delete("0-1000")
    body = talk.body(dialect)
    out, _ = sent(body, dialect, handle_tokens=1)

    conversation = read_request(body, dialect)  # type: ignore[arg-type]
    for place in differences(body, out, dialect):
        assert conversation.items[place].kind in ("result", "call")


# -- handles of the host's results -------------------------------------


@dialects
def test_a_hosts_result_can_be_forgotten_and_comes_back(dialect: str) -> None:
    talk = Talk()
    call_id = talk.host(LONG)
    talk.host("small")
    with_line, report = sent(talk.body(dialect), dialect, handle_tokens=100)
    (host,) = report.host_results
    assert (
        host.text == LONG
        and results(with_line, dialect)[call_id]
        == f"{host.handle} · Read src/x.py · {host.tokens} tokens\n{LONG}"
    )

    talk.delete(host.handle)
    out, _ = sent(talk.body(dialect), dialect, handle_tokens=100)
    assert results(out, dialect)[call_id] == (
        f"[pensieve: {host.handle} forgotten · Read result · src/x.py · {host.tokens} tokens · "
        f"restoreContext {host.handle} brings it back]"
    )

    talk.restore(host.handle)
    again, _ = sent(talk.body(dialect), dialect, handle_tokens=100)
    assert results(again, dialect)[call_id] == results(with_line, dialect)[call_id]


@dialects
def test_the_arguments_of_a_hosts_call_go_with_its_result_when_asked_and_come_back(dialect: str) -> None:
    """What a host writes into files stands in its calls, and their results are small."""
    talk = Talk()
    call_id = talk.host("Written.", "Write", file_path="a.py", content="WRITTEN " * 300)
    talk.host("row " * 300, path="b.py")
    body = talk.body(dialect)
    shown, report = sent(body, dialect, handle_tokens=100)
    write, read = report.host_results
    line = results(shown, dialect)[call_id]
    assert re.fullmatch(
        rf"{write.handle} · Write a\.py · \d tokens · \d{{3}} in its call, which keep_thought drops too\nWritten\.",
        line,
    )
    assert "keep_thought" not in results(shown, dialect)["call_0001"]

    talk.delete(write.handle)
    without = sent(talk.body(dialect), dialect, handle_tokens=100)[0]
    assert b"WRITTEN" in without and b"Written." not in without
    talk.delete(f"{write.handle},{read.handle}", keep_thought=True)
    body = talk.body(dialect)
    out, report = sent(body, dialect, handle_tokens=100)
    assert b"WRITTEN" not in out and b"row row" not in out
    assert len(differences(body, out, dialect)) == 4
    conversation = read_request(out, dialect)  # type: ignore[arg-type]
    call = next(item for item in conversation.items if item.kind == "call" and item.call_id == call_id)
    arguments = arguments_of(conversation, call)
    assert isinstance(arguments, dict) and list(arguments) == ["pensieve"]
    assert re.fullmatch(
        rf"{write.handle} forgotten · Write call · a\.py · 6\d\d tokens · restoreContext {write.handle} brings it back",
        arguments["pensieve"],
    )
    assert [one.handle for one in report.host_results] == [write.handle, read.handle]
    assert sent(out, dialect, handle_tokens=100)[0] == out

    talk.restore(write.handle)
    again = sent(talk.body(dialect), dialect, handle_tokens=100)[0]
    assert again.count(b"WRITTEN") == body.count(b"WRITTEN") and b"row row" not in again
    assert results(again, dialect)[call_id] == line


def test_a_call_of_a_providers_own_tool_keeps_its_form() -> None:
    """The shell of OpenAI takes its action in one form only; its output goes, the call stays."""
    talk = Talk()
    call_id = talk.host("row " * 300, "shell")
    data = json.loads(talk.body("responses"))
    call = next(item for item in data["input"] if item.get("call_id") == call_id)
    call.clear()
    call |= {
        "type": "local_shell_call",
        "call_id": call_id,
        "action": {"type": "exec", "command": ["ls", "x" * 4_000]},
    }
    raw = json.dumps(data).encode()
    handle = sent(raw, "responses", handle_tokens=100)[1].host_results[0].handle
    more = Talk()
    more.delete(handle, keep_thought=True)
    data["input"] += json.loads(more.body("responses").replace(b"call_0000", b"call_0009"))["input"][1:]
    out = json.loads(sent(json.dumps(data).encode(), "responses", handle_tokens=100)[0])

    assert call in out["input"] and b"row row" not in json.dumps(out).encode()


@cache
def alike() -> tuple[str, str]:
    """Two call ids whose names begin with the same four digits."""
    first: dict[str, str] = {}
    for number in range(10_000):
        other = first.setdefault(host_handle(f"call_{number:04}"), f"call_{number:04}")
        if other != f"call_{number:04}":
            return other, f"call_{number:04}"
    raise AssertionError("no two")


@dialects
@pytest.mark.parametrize("cleared", [False, True])
def test_two_results_with_the_same_digits_have_names_of_their_own_which_stay(
    dialect: str, cleared: bool
) -> None:
    """`cleared`: the host empties the older one later, as hosts do, and the younger one keeps its longer name."""
    talk = Talk()
    for call_id, words in zip(alike(), ("FIRST " * 200, "SECOND " * 200), strict=True):
        talk.steps.append(Step(call_id, "Read", {"file_path": "x"}, words, host=True))
    _, report = sent(talk.body(dialect), dialect, handle_tokens=50)
    short, long = (one.handle for one in report.host_results)
    assert long.startswith(short) and len(long) == len(short) + 1
    talk.delete(long)
    if cleared:
        talk.steps[0].result = "[cleared]"

    now = results(sent(talk.body(dialect), dialect, handle_tokens=50)[0], dialect)
    assert "SECOND" not in now[alike()[1]] and f"[pensieve: {long} forgotten" in now[alike()[1]]
    assert ("FIRST" in now[alike()[0]]) is not cleared


@dialects
def test_a_short_name_that_two_results_share_deletes_neither(dialect: str) -> None:
    """The server refuses it; should one say yes, nobody knows to which."""
    talk = Talk()
    for call_id in alike():
        talk.steps.append(Step(call_id, "Read", {"file_path": "x"}, "WORDS " * 200, host=True))
    talk.delete(host_handle(alike()[0]))
    now = results(sent(talk.body(dialect), dialect, handle_tokens=50)[0], dialect)
    assert all("WORDS" in now[call_id] for call_id in alike())

    talk.delete(host_handle(alike()[0], 5))
    now = results(sent(talk.body(dialect), dialect, handle_tokens=50)[0], dialect)
    assert ["WORDS" in now[call_id] for call_id in alike()] == [False, True]


def test_pictures_go_with_a_forgotten_result_and_a_caching_mark_stays() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 400},
    }
    body = json.loads(
        Talk([Step("call_0000", "Read", {"file_path": "a.png"}, "x", host=True)]).body("anthropic")
    )
    block = body["messages"][2]["content"][0]
    block["content"] = [
        picture,
        {"type": "text", "text": "end"},
        {**picture, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    raw = json.dumps(body).encode()
    _, report = sent(raw, "anthropic", handle_tokens=1)
    handle = report.host_results[0].handle

    talk = Talk()
    talk.delete(handle)
    body["messages"] += json.loads(talk.body("anthropic").replace(b"call_0000", b"call_0009"))["messages"][1:]
    out, _ = sent(json.dumps(body).encode(), "anthropic", handle_tokens=1)
    stubbed = json.loads(out)["messages"][2]["content"][0]

    assert b"iVBOR" not in out and len(stubbed["content"]) == 1
    assert stubbed["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert stubbed["cache_control"] == {"type": "ephemeral"} and stubbed["tool_use_id"] == "call_0000"


def test_what_loads_tools_is_never_touched() -> None:
    body = json.loads(
        Talk([Step("call_0000", "ToolSearch", {"query": "q" * 50}, "x", host=True)]).body("anthropic")
    )
    body["messages"][2]["content"][0]["content"] = [{"type": "tool_reference", "tool_name": "t" * 64}] * 50
    raw = json.dumps(body).encode()

    assert sent(raw, "anthropic", handle_tokens=1)[0] == raw


# -- properties -------------------------------------

WORDS = st.text(min_size=1, max_size=60).map(lambda t: t * 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), WORDS),
        st.tuples(st.just("host"), WORDS),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("delete call"), st.integers(0, 30)),
        st.tuples(st.just("restore"), st.integers(0, 30)),
        st.tuples(st.just("failed delete"), st.integers(0, 30)),
        st.tuples(st.just("delete host"), st.integers(0, 30)),
        st.tuples(st.just("delete host with its call"), st.integers(0, 30)),
        st.tuples(st.just("restore host"), st.integers(0, 30)),
    ),
    max_size=14,
)


def told(
    steps: list[tuple[str, Any]], dialect: str, handle_tokens: int | None, talk: Talk | None = None
) -> Talk:
    talk = talk or Talk()
    for kind, value in steps:
        if kind == "read":
            talk.read(value)
        elif kind == "host":
            talk.host(value)
        elif "host" in kind:
            _, report = sent(talk.body(dialect), dialect, handle_tokens=handle_tokens)
            if report.host_results:
                handle = report.host_results[value % len(report.host_results)].handle
                if kind == "restore host":
                    talk.restore(handle)
                else:
                    talk.delete(handle, **({"keep_thought": "true"} if "call" in kind else {}))
        elif kind == "failed delete":
            talk.own("deleteContext", {"msg_id": f"m{value}"}, "no", is_error=True)
        elif kind == "restore":
            talk.restore(f"m{value}")
        else:
            talk.delete(f"m{value * 2 if kind == 'delete' else value * 2 + 1}")
    return talk


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from(DIALECTS), st.sampled_from([None, 5]), st.sampled_from(["eager", "batched", "threshold"]),
       st.booleans(), st.sampled_from([None, 2]))  # fmt: skip
def test_rewriting_is_exact_paired_idempotent_and_steady(
    steps: list[tuple[str, Any]],
    dialect: str,
    handle_tokens: int | None,
    name: Any,
    ascii_only: bool,
    indent: int | None,
) -> None:
    policy = Policy(name, horizon=3, least_tokens=200)
    talk = told(steps, dialect, handle_tokens)
    lines, read_before = Lines(), Earlier()
    earlier: dict[str, str] = {}
    for upto in range(len(talk.steps) + 1):
        body = talk.body(dialect, upto=upto, ascii_only=ascii_only, indent=indent)
        out, report = sent(
            body, dialect, policy, handle_tokens=handle_tokens, lines=lines, earlier=read_before
        )
        assert not report.notes
        differences(body, out, dialect)  # everything but items of the same kind and id is the same bytes
        if not report.stubbed and not report.host_results:
            assert out == body
        again, _ = sent(out, dialect, policy, handle_tokens=handle_tokens)
        assert again == out
        # A new process gives the same bytes: nothing is remembered but what the conversation holds.
        assert sent(body, dialect, policy, handle_tokens=handle_tokens)[0] == out
        now = results(out, dialect)
        restored = upto > 0 and talk.steps[upto - 1].tool == "restoreContext"
        for call_id, text in earlier.items():
            if text.startswith("[pensieve: ") and not restored:
                assert now[call_id] == text  # a stub is constant; what was taken out stays out
        earlier = now


@settings(max_examples=40, deadline=None)
@given(STEPS, st.sampled_from(DIALECTS), st.sampled_from([None, 5]))
def test_nothing_is_forgotten_that_was_not_asked_for(
    steps: list[tuple[str, Any]], dialect: str, handle_tokens: int | None
) -> None:
    talk = told(steps, dialect, handle_tokens)
    _, report = sent(talk.body(dialect), dialect, handle_tokens=handle_tokens)

    assert {m.handle for m in report.messages if m.state == "forgotten"} == asked_for(talk, report)


def asked_for(talk: Talk, report: Report) -> set[str]:
    """What the conversation's own deletions and restorations leave forgotten, of what it holds."""
    wanted: set[str] = set()
    for step in talk.steps:
        if step.host or step.is_error or step.tool not in ("deleteContext", "restoreContext"):
            continue
        name = str(step.arguments["msg_id"])
        if name.startswith("h"):  # was told to whoever names it
            (wanted.add if step.tool == "deleteContext" else wanted.discard)(name)
            continue
        asked = int(name.lstrip("m"))
        number = int(re.match(r"m(\d+)", step.result)[1])  # type: ignore[index]
        if asked < number - 1:  # said before
            (wanted.add if step.tool == "deleteContext" else wanted.discard)(f"m{asked}")
    return wanted & {m.handle for m in report.messages}


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(0, 14), STEPS, STEPS, st.sampled_from(DIALECTS), st.sampled_from([None, 5]))
def test_a_fork_and_a_resumption_lose_what_they_were_asked_to_and_nothing_else(
    steps: list[tuple[str, Any]],
    place: int,
    left: list[tuple[str, Any]],
    right: list[tuple[str, Any]],
    dialect: str,
    handle_tokens: int | None,
) -> None:
    """Two conversations part somewhere and go on in turns through one gateway; numbers are the workspace's, so they
    never meet. Then a new gateway resumes both.
    """
    trunk = told(steps, dialect, handle_tokens)
    kept = trunk.steps[:place]
    branches = [
        told(left, dialect, handle_tokens, Talk(list(kept), trunk.last)),
        told(right, dialect, handle_tokens, Talk(list(kept), trunk.last + 1_000)),
    ]
    read_before, lines = Earlier(), Lines()
    for upto in range(len(kept), max(len(branch.steps) for branch in branches) + 1):
        for branch in branches:
            body = branch.body(dialect, upto=upto)
            out, report = sent(body, dialect, handle_tokens=handle_tokens, lines=lines, earlier=read_before)
            lived = Talk(branch.steps[:upto])
            assert {m.handle for m in report.messages if m.state == "forgotten"} == asked_for(lived, report)
            assert sent(body, dialect, handle_tokens=handle_tokens)[0] == out


@dialects
def test_blocks_that_nobody_knows_pass_and_hinder_nothing(dialect: str) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.delete(f"m{number}")
    data = json.loads(talk.body(dialect))
    items = data["input" if dialect == "responses" else "messages"]
    odd: list[Any] = [
        {"type": "hologram", "data": {"tool_use_id": "call_0000", "content": LONG}},
        None,
        7,
        "text",
        [],
    ]
    items[1:1] = odd if dialect == "responses" else [{"role": "user", "content": odd}]
    items.append({"role": "oracle", "content": [{"type": "hologram", "text": "m2 · c1 · 5 tokens"}]})
    raw = json.dumps(data).encode()
    out, report = sent(raw, dialect)

    assert report.stubbed == 1 and not report.notes
    assert json.loads(out)["input" if dialect == "responses" else "messages"][1] == items[1]
    assert len(out) < len(raw) and out.count(LONG.encode()) == raw.count(LONG.encode()) - 1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(DIALECTS))
def test_whatever_comes_is_passed_on(body: bytes, dialect: str) -> None:
    assert sent(body, dialect, handle_tokens=1)[0] == body


@dialects
def test_a_request_cut_anywhere_is_passed_on(dialect: str) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.delete(f"m{number}")
    body = talk.body(dialect)
    for end in range(0, len(body), 37):
        cut = body[:end]
        assert sent(cut, dialect, handle_tokens=1)[0] == cut


@dialects
def test_odd_but_valid_bodies_survive(dialect: str) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.delete(f"m{number}")
    body = talk.body(dialect)
    deep = b"[" * 5_000 + b"]" * 5_000
    odd = (
        body[:-1]
        + b' , "deep":'
        + deep
        + b',"model":"m","n":1e999,"digits":'
        + b"9" * 6_000
        + b',"\\u0061":"\\ud800"}\n '
    )

    out, report = sent(odd, dialect)

    assert report.stubbed == 1
    assert out.endswith(odd[len(body) - 1 :])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(STEPS, st.integers(0, 14)), min_size=1, max_size=4),
    st.sampled_from(DIALECTS),
    st.sampled_from([None, 5]),
    st.sampled_from(["eager", "batched", "threshold"]),
    st.data(),
)
def test_what_was_read_before_changes_no_answer(
    talks: list[tuple[list[tuple[str, Any]], int]],
    dialect: str,
    handle_tokens: int | None,
    name: Any,
    data: st.DataObject,
) -> None:
    """Conversations that begin alike, mixed, forked and cut: read with help they are the same as read alone."""
    read_before, lines = Earlier(), Lines()
    policy = Policy(name, horizon=3, least_tokens=200)
    bodies = [told(steps, dialect, handle_tokens).body(dialect, upto=upto) for steps, upto in talks]
    for body in data.draw(st.permutations(bodies * 2)):
        cut = data.draw(st.sampled_from([body, body, body[: len(body) // 2], body + b" "]))
        helped = sent(cut, dialect, policy, handle_tokens=handle_tokens, lines=lines, earlier=read_before)
        assert helped == sent(cut, dialect, policy, handle_tokens=handle_tokens)


@dialects
def test_a_long_conversation_goes_on_from_where_it_was(dialect: str) -> None:
    """Request by request, with forks, a retry and another size of its tools; each as if it came alone."""
    talk = Talk()
    for chunk in range(30):
        number = talk.read(f"TEXT{chunk} " * 90, chunk)
        talk.host(f"HOST{chunk} " * 90, path=f"f{chunk}")
        if chunk % 3 == 2:
            talk.delete(f"m{number - 4}")
        if chunk % 7 == 6:
            talk.restore(f"m{number - 14}")
    read_before, lines = Earlier(), Lines()
    policy = Policy("batched", horizon=200)
    turns = [*range(1, len(talk.steps) + 1), 40, 40, 12, 41, 70]
    for turn, upto in enumerate(turns):
        body = talk.body(dialect, upto=upto)
        if turn % 5 == 4:
            body = body.replace(b'"tools": [', b'"tools": [' + b" " * 4_000)
        helped = sent(body, dialect, policy, handle_tokens=50, lines=lines, earlier=read_before)
        assert helped == sent(body, dialect, policy, handle_tokens=50)
    assert helped[1].stubbed > 4 and helped[1].decisions


def test_results_of_one_size_and_one_call_id_in_two_conversations_keep_their_own_words() -> None:
    """Call ids of small servers begin anew in each conversation; nothing of one may be taken for the other's."""
    lines, read_before = Lines(), Earlier()
    for words in ("first  " * 300, "second " * 300):
        talk = Talk()
        call_id = talk.host(words)
        _, report = sent(talk.body("chat"), "chat", handle_tokens=50, lines=lines, earlier=read_before)
        assert report.host_results[0].text == words and call_id == "call_0000"


def test_the_same_bytes_are_read_anew_in_another_dialect() -> None:
    talk = Talk()
    talk.read(LONG)
    body, read_before = talk.body("chat"), Earlier()
    for dialect in ("chat", "anthropic", "chat"):
        assert sent(body, dialect, earlier=read_before) == sent(body, dialect)


def test_a_fork_before_the_deletion_still_has_the_text() -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.read("other", 2)
    talk.delete(f"m{number}")
    fork = Talk(talk.steps[:2], talk.last)
    fork.read("a new way", 3)

    assert sent(fork.body("anthropic"), "anthropic")[0] == fork.body("anthropic")
