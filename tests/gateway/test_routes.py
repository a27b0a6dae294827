"""Where a host's requests go on to, when nobody says it: the vendor's own address, as each host writes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pensieve_mcp
from pensieve_mcp.gateway.hosts import route

PACKAGE = Path(pensieve_mcp.__file__).parent


@pytest.mark.parametrize(
    ("host", "environment", "expected"),
    [
        ("claude", {}, {("", "https://api.anthropic.com")}),
        ("claude", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/x"}, {("", "http://127.0.0.1:9/x")}),
        ("codex", {}, {("/v1", "https://api.openai.com/v1")}),
        ("codex", {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, {("/v1", "http://127.0.0.1:9/v1")}),
        (
            "opencode",
            {"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "x"},
            {("/anthropic", "https://api.anthropic.com/v1"), ("/openai", "https://api.openai.com/v1")},
        ),
    ],
)
def test_a_host_goes_where_it_would_go_without_us(
    host: str, environment: dict[str, str], expected: set[tuple[str, str]], tmp_path: Path
) -> None:
    found = route(host, "no-such-program", {"HOME": str(tmp_path), **environment}, tmp_path)

    assert {(one.prefix, one.url) for one in found.upstreams} == expected


def test_an_address_of_a_vendor_is_written_in_one_file() -> None:
    addresses = re.compile(r"https://(api|chatgpt)\.")
    named = {p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py") if addresses.search(p.read_text("utf-8"))}
    assert named == {Path("vendors.py")}
