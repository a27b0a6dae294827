"""Host, gateway, model, server and ledger together: what is deleted does not arrive, and comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from door import House, house
from talks import DIALECTS, Talk

from pensieve_mcp.spellbook.casting import cast

SECRET = "The keeper Maren Holt used 412 barrels of oil."
HOST_SECRET = "\n".join(f"row {n} says something about turnips" for n in range(300))
dialects = pytest.mark.parametrize("dialect", DIALECTS)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[House]:
    log = "\n".join(f"Line {n} tells of wind from the north." for n in range(60))
    with house(tmp_path, {"light.md": f"# The light\n\n{SECRET}\n{log}\n"}) as made:
        yield made


@dialects
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_what_is_deleted_does_not_arrive_and_what_is_restored_arrives_as_it_was(
    here: House, dialect: str, streamed: bool
) -> None:
    """Results of ours and of the host, the arguments of a call; after a restart of server and gateway as well."""
    said = here.conversation(dialect, streamed=streamed)
    read = said.call("readChunk", chunk_id="1").message["msg_id"]
    note = said.call("note", key="oil", summary="barrels", content="ARGUMENT 412")
    handle = said.host_reads(HOST_SECRET)
    before = said.turn()
    whole = said.results(before)
    assert SECRET in before.decode() and HOST_SECRET in whole[said.talk.steps[-1].call_id]
    assert b"ARGUMENT" in before and b"[pensieve: " not in before

    call_of_note = int(note.message["msg_id"].removeprefix("m")) - 1
    deleted = said.call("deleteContext", msg_id=f"{read},{handle},m{call_of_note}")
    after = said.turn()

    assert not deleted.is_error and deleted.result["physical"] == "yes", deleted.text
    assert SECRET not in after.decode() and b"turnips" not in after and b"ARGUMENT" not in after
    now = said.results(after)
    assert set(now) > set(whole), "each call keeps its result"
    ids = {
        name: call_id
        for call_id, text in whole.items()
        for name in (read, handle)
        if f"{name} · " in text[:80]
    }
    for name in (read, handle):
        assert f"[pensieve: {name} forgotten" in now[ids[name]]
        assert f"restoreContext {name} brings it back" in now[ids[name]]
    assert said.results(after)[said.talk.steps[1].call_id] == whole[said.talk.steps[1].call_id]
    assert said.turn() == after, "a stub is constant"

    here.restart()
    assert said.turn() == after, "a resumed conversation is the same one"
    receipt = said.call("restoreContext", msg_id=f"{read},{handle},m{call_of_note}")
    again = said.turn()
    assert f"Restored {read}" in receipt.text and "in its old place" in receipt.text.replace("their", "its")
    assert SECRET not in receipt.text and "turnips" not in receipt.text
    end = before.rindex(b"turnips")
    assert again[:end] == before[:end], "byte for byte, in its place"
    assert here.gateway.keeper.totals.troubles == []


@dialects
def test_what_belongs_to_another_conversation_cannot_be_deleted_from_here(here: House, dialect: str) -> None:
    """The server refuses; and if somebody wrote a success into the conversation, it would name nothing in it."""
    mine = here.conversation(dialect, "mine")
    read = mine.call("readChunk", chunk_id="1").message["msg_id"]
    handle = mine.host_reads(HOST_SECRET)
    before = mine.turn()
    other = here.conversation(dialect, "other")
    other.call("readChunk", chunk_id="1")
    refused = other.call("deleteContext", msg_id=handle)

    if dialect != "chat":  # opencode's server is one episode; its two conversations share it
        assert refused.is_error and refused.slug == "no_such_message"
        assert other.call("deleteContext", msg_id=read).slug == "no_such_message"
    other.talk.last += 1_000
    other.talk.delete(f"{read},{handle}")
    arrived = other.turn()

    assert arrived == other.body(), "nothing of its own was meant"
    assert mine.turn() == before, "nothing of mine was asked for here"


@dialects
def test_a_fork_from_before_a_deletion_still_has_the_text(here: House, dialect: str) -> None:
    trunk = here.conversation(dialect, "trunk")
    read = trunk.call("readChunk", chunk_id="1").message["msg_id"]
    handle = trunk.host_reads(HOST_SECRET)
    fork = here.conversation(dialect, "fork")
    fork.talk = Talk(list(trunk.talk.steps), trunk.talk.last)
    trunk.call("deleteContext", msg_id=f"{read},{handle}")
    gone = trunk.turn()
    kept = fork.turn()

    assert SECRET not in gone.decode() and b"turnips" not in gone
    assert SECRET in kept.decode() and HOST_SECRET in fork.results(kept)[fork.talk.steps[-1].call_id]
    here.restart()
    assert (trunk.turn(), fork.turn()) == (gone, kept), "both resumed"


def test_a_subagents_deletion_is_its_own(here: House) -> None:
    """Claude Code's sub-agents speak under the name of the main conversation, in between its turns."""
    main, sub = here.conversation("anthropic", "one"), here.conversation("anthropic", "one")
    main_read = main.call("readChunk", chunk_id="1").message["msg_id"]
    main_handle = main.host_reads(HOST_SECRET, "main.py")
    sub.talk.steps = []
    sub_handle = sub.host_reads(HOST_SECRET.replace("turnips", "parsnips"), "a-longer-way.py")
    assert sub_handle == main_handle or sub_handle not in main.turn().decode()
    before = main.turn()
    sub.talk.last = main.talk.last + 100
    sub.talk.delete(f"{main_read},{main_handle}")  # says the sub-agent, which does not hold them
    sub.talk.delete(sub_handle)

    assert b"parsnips" not in sub.turn()
    assert main.turn() == before


def test_two_hosts_at_once_leak_nothing_into_each_other(here: House) -> None:
    """Claude Code and Codex, several conversations each, in threads: prompts, episodes and ledger stay apart."""

    def lead(number: int) -> tuple[str, list[bytes]]:
        said = here.conversation(("anthropic", "responses")[number % 2], f"name-{number}")
        said.call("readChunk", chunk_id="1")
        handle = said.host_reads(f"WORDS{number} " * 400, f"f{number}.py")
        arrived = [said.turn()]
        said.call("deleteContext", msg_id=handle)
        arrived.append(said.turn())
        assert f"WORDS{number} ".encode() in arrived[0] and f"WORDS{number} ".encode() not in arrived[1]
        entries = said.episode.transcript().entries
        held = [here.workspace.ledger.content(entry.message) for entry in entries if entry.message.handle]
        assert held == [f"WORDS{number} " * 400]
        return f"WORDS{number} ", arrived

    with ThreadPoolExecutor(8) as pool:
        led = list(pool.map(lead, range(8)))
    for number, (_, arrived) in enumerate(led):
        for other, (words, _) in enumerate(led):
            assert other == number or not any(words.encode() in body for body in arrived)
    assert here.gateway.keeper.totals.troubles == []


def test_what_authorises_a_request_is_nowhere_written_down(
    here: House, caplog: pytest.LogCaptureFixture
) -> None:
    said = here.conversation("anthropic")
    secret = "sk-ant-never-to-be-kept"
    said.more = {"Authorization": f"Bearer {secret}", "X-Api-Key": secret, "Cookie": secret}
    said.call("readChunk", chunk_id="1")
    said.host_reads(HOST_SECRET)
    here.restart()

    assert here.upstream.got[-1].header("x-api-key") == secret
    written = [path for path in here.library.parent.rglob("*") if path.is_file()]
    assert any(b"turnips" in path.read_bytes() or path.name == "blobs.db" for path in written)
    assert not [path for path in written if secret.encode() in path.read_bytes()]
    assert secret not in caplog.text


def test_check_budget_says_what_it_sees_and_what_waits_why(tmp_path: Path) -> None:
    with house(tmp_path, {"light.md": f"# The light\n\n{SECRET}\n"}, "threshold") as here:
        said = here.conversation("anthropic")
        handle = said.host_reads(HOST_SECRET)
        deleted = said.call("deleteContext", msg_id=handle)
        told = said.call("checkBudget")
        alone = cast(here.workspace.episode("mcp", host="other"), "checkBudget", {})

        assert deleted.result["physical"] == "pending" and b"turnips" in said.turn()
        assert told.result["sees"] == "conversation" and "the provider's count" in told.text
        assert "deleted tokens wait (policy threshold)" in told.text and "20,000 are wanted" in told.text
        assert alone.result["sees"] == "tool traffic"
