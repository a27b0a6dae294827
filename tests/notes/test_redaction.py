"""Secrets go before anything is stored, and nothing else does (issue 6, item 8)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.redaction import Redacted, find_secrets, redact

from .conftest import LEASE, RENT, Desk

MARK = re.compile(r"\[redacted: [a-z0-9-]+\]")
B64 = "Ab1" * 40
# Put together here, so that no scanner takes this file for a leak.
SECRETS = {
    "aws-access-key": "AKIA"
    + "IOSFODNN7ABCDEFG"[:16].replace("0", "2").replace("1", "2").replace("9", "2").replace("8", "2"),
    "github-token": "ghp_" + "a1B2" * 9,
    "gitlab-token": "glpat-" + "a1B2-" * 5,
    "anthropic-key": "sk-ant-" + "api03-" + B64[:40],
    "openai-key": "sk-" + "proj-" + B64[:48],
    "google-api-key": "AIza" + "Sy" + B64[:33],
    "slack-token": "xoxb" + "-123456789012-abcdefABCDEF",
    "stripe-key": "sk_" + "live_" + B64[:24],
    "npm-token": "npm_" + B64[:36],
    "hugging-face-token": "hf_" + B64[:34],
    "telegram-token": "123456789:" + "AA" + B64[:33],
    "azure-client-secret": "abc8Q~" + B64[:34],
    "digitalocean-token": "dop" + "_v1_" + "0a1b2c3d" * 8,
    "databricks-token": "dapi" + "0a1b2c3d" * 4,
    "docker-token": "dckr" + "_pat_" + B64[:27],
    "discord-token": "MTA" + B64[:21] + ".Gh1x2y." + B64[:38],
    "atlassian-token": "ATATT3" + "x" + B64[:60],
    "mailchimp-key": "0a1b2c3d" * 4 + "-us12",
    "mailgun-key": "key-" + "0a1b2c3d" * 4,
    "square-token": "sq0" + "atp-" + B64[:22],
    "shopify-token": "shpat" + "_" + "0a1b2c3d" * 4,
    "grafana-token": "glsa" + "_" + B64[:32] + "_0a1b2c3d",
    "vault-token": "hvs." + B64[:24],
    "linear-key": "lin" + "_api_" + B64[:40],
    "notion-token": "ntn" + "_" + B64[:44],
    "postman-key": "PMAK-" + "0a1b2c3d" * 3 + "-" + "0a1b2c3d" * 4 + "ab",
    "new-relic-key": "NRAK-" + B64[:27],
    "sentry-token": "sntrys" + "_" + B64[:50],
    "rubygems-key": "rubygems" + "_" + "0a1b2c3d" * 6,
    "supabase-key": "sbp" + "_" + "0a1b2c3d" * 5,
    "groq-key": "gsk" + "_" + B64[:52],
    "replicate-token": "r8" + "_" + B64[:37],
    "json-web-token": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + B64[:20],
    "private-key": "-----BEGIN RSA " + "PRIVATE KEY-----\n" + B64 + "\n-----END RSA " + "PRIVATE KEY-----",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_replaced_by_its_kind(name: str) -> None:
    secret = SECRETS[name]
    for text in (secret, f"The key is {secret}, use it.", f'{{"k": "{secret}"}}', f"a\n{secret}\nb"):
        cleaned = redact(text)
        assert f"[redacted: {name}]" in cleaned
        assert secret[-12:] not in cleaned
        assert redact(cleaned) == cleaned, "done twice it is the same"


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("postgres://mill:hunter2secret@db.local/rent", "postgres://mill:", "hunter2secret"),
        ('password = "correct-horse"', "password", "correct-horse"),
        ("DB_PASSWORD=s3cretValue123", "DB_PASSWORD=", "s3cretValue123"),
        ("api_key: 9f8e7d6c5b4a3f2e1d0c", "api_key:", "9f8e7d6c5b4a3f2e1d0c"),
        ("Authorization: Bearer abcdef0123456789abcdef", "Authorization: Bearer", "abcdef0123456789"),
    ],
)
def test_of_an_assignment_only_the_value_goes(text: str, kept: str, gone: str) -> None:
    assert kept in redact(text) and gone not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        LEASE,
        "The password is kept in the safe; ask the miller.",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "commit 69140dcf2a7b1e0c9d8e7f6a5b4c3d2e1f0a9b8c",
        "uuid 123e4567-e89b-12d3-a456-426614174000",
        "password = os.environ['DB_PASSWORD']",
        "api_key=YOUR_API_KEY_GOES_HERE1",
        "The secret: honesty. The token economy grew.",
        "https://example.org:8080/path?x=1@2",
        "task-based approach, sk-learn and risk-averse",
        "the key-value store in us-east-1, monkey-us2 and hvs.example",
        "Monday. Mr. Nobody. www.example.org/a.b.c",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("The password is hunter2; call him.", "hunter2"),
        ("password: hunter2.", "hunter2"),
        ("Das Kennwort lautet Sommer2024!", "Sommer2024"),
        ("the passphrase was “corr3ct-horse”", "corr3ct-horse"),
    ],
)
def test_a_password_as_people_write_it_goes(text: str, gone: str) -> None:
    cleaned = redact(text)

    assert gone not in cleaned and "[redacted: told-password]" in cleaned and redact(cleaned) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "The password is required, and is 12 characters long.",
        "The password is base64-encoded, then sha256 hashed; in 1Password.",
        "Password: see page 12a. passwords: 3 of 4",
        "The password was changed on 2024-01-02.",
        "password: $DB_PASS1, password: <your-pass1>",
    ],
)
def test_what_is_said_about_a_password_stays(text: str) -> None:
    assert redact(text) == text


@given(st.text(max_size=300))
def test_any_text_is_taken_and_cleaning_it_twice_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert not find_secrets(once) or "[redacted" in once


@pytest.mark.parametrize(
    "nasty",
    ["a-" * 50_000 + "password", "://" * 40_000, "eyJ" * 40_000, "password=" * 20_000, "aws secret " * 15_000,
     "-----BEGIN PRIVATE KEY-----" * 3_000],
)  # fmt: skip
def test_a_text_made_to_be_slow_is_gone_through(nasty: str) -> None:
    """Patterns that backtrack without bound would stop the notebook here, until the test's own limit ends it."""
    assert redact(redact(nasty)) == redact(nasty)


def test_secrets_do_not_reach_the_notebook(desk: Desk) -> None:
    secret = SECRETS["github-token"]
    told = desk.cast(
        "note", key="k", summary=f"token {secret}", content=f"use {secret}",
        evidence=[{"path": "docs/lease.md", "quote": RENT}],
    )  # fmt: skip
    desk.cast("updateNote", key="k", mode="append", new_content=f"again {secret}")
    desk.cast("plan", goal=f"rotate {secret}")

    assert "Secrets were taken out of the summary and the content before storing." in told.text
    assert "[redacted: github-token]" in desk.stored("k").content
    raw = b"".join(path.read_bytes() for path in desk.workspace.state.glob("pensieve.db*"))
    assert secret.encode() not in raw
    assert desk.workspace.notebook.search(secret[:20]).total == 0


@pytest.mark.parametrize("again", ["same file", "changed around it", "changed in it"])
def test_a_quote_noted_without_its_secret_is_found_in_the_document_that_holds_it(
    desk: Desk, again: str
) -> None:
    """The document keeps its secret, the notebook does not; its evidence must not read `changed` for that."""
    secret = SECRETS["github-token"]
    line = f"The deploy token {secret} opens the mill door, and only that."
    desk.write("ops.md", f"# Doors\n\n{line}\n")
    desk.build()
    desk.note("token", "c", {"path": "docs/ops.md", "quote": line})
    if again == "changed around it":
        desk.write("ops.md", f"# Doors\n\nA word before. Key: {secret}\n\n{line} And a word after.\n")
    elif again == "changed in it":
        desk.write("ops.md", f"# Doors\n\n{line.replace('mill', 'barn')}\n")
    desk.build()
    piece = desk.piece("token")

    assert piece["state"] == (
        "changed" if again == "changed in it" else "ok" if again == "same file" else "moved"
    )
    assert "[redacted: github-token]" in piece["quote"]
    stored = desk.stored("token").evidence[0]
    assert secret[:12] not in f"{stored.prefix}{stored.suffix}{stored.detail}"
    raw = b"".join(path.read_bytes() for path in desk.workspace.state.glob("pensieve.db*"))
    assert secret.encode() not in raw


@given(
    st.lists(
        st.sampled_from([*SECRETS.values(), "The rent is forty-two.", " ", "\n", "é", "hvs."]), max_size=8
    )
)
def test_places_in_a_cleaned_text_lead_to_the_same_words_in_the_text_as_it_is(parts: list[str]) -> None:
    text = " ".join(parts)
    cleaned = Redacted(text)
    assert cleaned.text == redact(text)
    inside = {i for mark in MARK.finditer(cleaned.text) for i in range(*mark.span())}
    for place, sign in enumerate(cleaned.text):
        low, high = cleaned.original(place, place + 1)
        assert 0 <= low <= high <= len(text)
        assert place in inside or text[low:high] == sign
    for mark in MARK.finditer(cleaned.text):
        low, high = cleaned.original(mark.start() + 3, mark.start() + 5)
        assert redact(text[low:high]) == mark[0], "a secret that is touched counts whole"
    assert cleaned.original(0, len(cleaned.text)) == (0, len(text))
