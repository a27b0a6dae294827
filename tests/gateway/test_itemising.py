"""The budget behind the gateway: message by message, and in sum what the provider counts."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from talks import DIALECTS, FACTS, Talk
from upstreams import Handler, Upstream

from pensieve_mcp.gateway.itemising import MOST_SHARES, shares_of
from pensieve_mcp.gateway.proxy import Upstream as Place
from pensieve_mcp.gateway.rewrite import rewrite
from pensieve_mcp.gateway.serving import RunningGateway
from pensieve_mcp.gateway.timing import Policy
from pensieve_mcp.settings import Settings
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace

LONG = "The treaty was signed at Velsay. " * 90


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_shares_name_every_kind_and_add_up_to_the_prompt(dialect: str) -> None:
    talk = Talk()
    number = talk.read(LONG)
    talk.host(LONG)
    talk.host("small")
    talk.read(LONG * 2, 2)
    talk.delete(f"m{number}")
    body = talk.body(dialect)
    _, report = rewrite(body, dialect, FACTS, Policy("eager"), handle_tokens=100)  # type: ignore[arg-type]
    shares = shares_of(report, 10_000)

    assert abs(sum(share.tokens for share in shares) - 10_000) <= len(shares)
    tokens = {share.name: share.tokens for share in shares if share.name}
    host = report.host_results[0].handle
    assert tokens[f"m{number}"] < tokens[host] / 3, "a stub counts as what it takes now"
    assert 1.7 < tokens["m4"] / tokens[host] < 2.4
    kinds = {share.kind for share in shares}
    assert {"tools", "user", "result"} <= kinds
    assert {"anthropic": "thinking", "responses": "thinking", "chat": "assistant"}[dialect] in kinds


def test_of_a_long_conversation_the_small_ones_are_told_in_sum() -> None:
    talk = Talk()
    for chunk in range(60):
        talk.read("word " * (chunk + 5), chunk)
    _, report = rewrite(talk.body("chat"), "chat", FACTS, Policy("eager"))
    shares = shares_of(report, 50_000)

    assert len([share for share in shares if share.name]) == MOST_SHARES
    assert {share.kind for share in shares if not share.name} >= {"result", "call"}
    assert abs(sum(share.tokens for share in shares) - 50_000) <= len(shares)


def test_a_request_that_was_not_read_has_no_shares() -> None:
    _, report = rewrite(b"{broken", "chat", FACTS, Policy("eager"))

    assert shares_of(report, 1_000) == ()


def test_check_budget_tells_the_conversation_message_by_message(tmp_path: Path) -> None:
    """Through the door: the host asks the gateway, the model calls checkBudget, the server answers it."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "light.md").write_text("412 barrels.\n", encoding="utf-8")
    home = {"PENSIEVE_HOME": str(tmp_path / "home"), "PENSIEVE_UPGRADE": "false"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "mcp__pensieve__checkBudget", "input": {}}
    usage = {"input_tokens": 1_000, "cache_read_input_tokens": 60_000, "output_tokens": 50}

    def answer(handler: Handler, body: bytes) -> None:
        handler.whole(200, json.dumps({"content": [call], "usage": usage}).encode())

    talk = Talk()
    talk.host(LONG * 3)
    talk.read(LONG)
    body = json.loads(talk.body("anthropic"))
    body["messages"][0]["content"] = "A long question. " * 400
    with (
        Workspace.open([tmp_path / "archive"], environment=home, builder="inline") as workspace,
        Upstream(answer) as upstream,
        RunningGateway(
            (Place.of(upstream.url),), Settings(), lambda: workspace, tools=FACTS.tools
        ) as running,
    ):
        workspace.build_now()
        place = urlsplit(running.url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
        headers = {"Content-Type": "application/json", "X-Claude-Code-Session-Id": "session-1"}
        connection.request("POST", "/v1/messages", json.dumps(body), headers)
        connection.getresponse().read()
        connection.close()
        episode = workspace.episode("mcp", host="claude-code", thread="session-1")
        told = cast(episode, "checkBudget", {}, host_call_id="toolu_1")
        running.keeper._workspace = None  # the test closes it

    assert told.result["sees"] == "conversation" and told.result["used_tokens"] >= 61_050
    assert "61,000 tokens (the provider's count)" in told.text
    heavy = {one["label"]: one for one in told.result["heaviest"]}
    assert heavy["#1"]["tool"] == "user" and heavy["#1"]["msg_id"] == "" and heavy["#1"]["tokens"] > 10_000
    host = next(one for one in told.result["heaviest"] if one["msg_id"].startswith("h"))
    assert (
        host["tokens"] > 15_000 and "#1 user" in told.text and f"{host['msg_id']} Read src/x.py" in told.text
    )
