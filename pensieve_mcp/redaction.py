"""Secrets taken out of a text before it is kept: notes, logs and exports, never the ledger's exact contents.

A table of rules, each with the shape of one kind of secret as its issuer documents it; no entropy guessing, which
takes hashes and identifiers for secrets and would spoil quotes. Of what is found the kind stays, so that a reader
knows that something stood there: `[redacted: aws-access-key]`. Why the rules are ours: docs/decisions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

VERSION = 3
"""Grows with the table, so that a notebook can be gone through again."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` has a group `secret` where only a part of what it matches is one."""

    name: str
    pattern: re.Pattern[str]
    marks: tuple[
        str, ...
    ]  # one of these must be in the text, or the pattern is not tried: most texts hold none


def _rule(name: str, pattern: str, *marks: str, flags: int = 0) -> Rule:
    return Rule(name, re.compile(pattern, flags), marks)


_WORD = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_-])"

_PASSWORD = r"[^\s'\"<>{}$,;()\[\]`“”„]"  # a sign of one, where it stands bare
_NO_PASSWORD = (
    r"(?i:(?:[a-z]{0,10}1password|base\d\d|sha-?\d|md5|bcrypt|argon2|pbkdf2|aes-?\d|utf-?\d|oauth2|rot13|at-|p\.\s?\d"
    r"|https?:|www\.))"
)  # what is said about one

RULES: tuple[Rule, ...] = (
    _rule(
        "private-key",
        r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]|-(?!----)){0,20000}(?:-----END (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?",
        "PRIVATE KEY",
    ),
    _rule("aws-access-key", rf"{_WORD}(?:AKIA|ASIA)[A-Z2-7]{{16}}{_END}", "AKIA", "ASIA"),
    _rule(
        "aws-secret-key",
        r"(?i:aws.{0,20}?secret.{0,20}?)['\"=:\s]{1,5}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        "aws", "AWS", "Aws",
    ),
    _rule("github-token", rf"{_WORD}(?:gh[pousr]_[A-Za-z0-9]{{36,255}}|github_pat_[A-Za-z0-9_]{{22,255}}){_END}",
          "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    _rule("gitlab-token", rf"{_WORD}gl(?:pat|ptt|rt|dt|soat|ft|cbt)-[A-Za-z0-9_-]{{20,}}", "glpat-", "glptt-", "glrt-",
          "gldt-", "glsoat-", "glft-", "glcbt-"),
    _rule("anthropic-key", rf"{_WORD}sk-ant-[A-Za-z0-9_-]{{20,}}", "sk-ant-"),
    _rule("openai-key", rf"{_WORD}sk-(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{{32,}}", "sk-"),
    _rule("google-api-key", rf"{_WORD}AIza[0-9A-Za-z_-]{{35}}{_END}", "AIza"),
    _rule("google-oauth-secret", rf"{_WORD}GOCSPX-[0-9A-Za-z_-]{{28}}", "GOCSPX-"),
    _rule("google-oauth-token", rf"{_WORD}ya29\.[0-9A-Za-z_-]{{20,}}", "ya29."),
    _rule("slack-token", rf"{_WORD}xox[abeoprs](?:-[0-9A-Za-z]{{1,64}}){{2,6}}", "xox"),
    _rule("slack-webhook", r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_+-]{20,}",
          "hooks.slack.com"),
    _rule("stripe-key", rf"{_WORD}(?:sk|rk)_(?:live|test)_[0-9A-Za-z]{{16,}}",
          "sk_live_", "sk_test_", "rk_live_", "rk_test_"),
    _rule("twilio-key", rf"{_WORD}SK[0-9a-f]{{32}}{_END}", "SK"),
    _rule("sendgrid-key", rf"{_WORD}SG\.[0-9A-Za-z_-]{{16,32}}\.[0-9A-Za-z_-]{{16,64}}", "SG."),
    _rule("npm-token", rf"{_WORD}npm_[0-9A-Za-z]{{36}}{_END}", "npm_"),
    _rule("pypi-token", rf"{_WORD}pypi-AgE[0-9A-Za-z_-]{{50,}}", "pypi-AgE"),
    _rule("hugging-face-token", rf"{_WORD}hf_[0-9A-Za-z]{{30,}}{_END}", "hf_"),
    _rule("telegram-token", rf"{_WORD}\d{{8,10}}:AA[0-9A-Za-z_-]{{33}}{_END}", ":AA"),
    _rule("azure-storage-key", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)", "AccountKey="),
    _rule("azure-client-secret", rf"{_WORD}[A-Za-z0-9_~.-]{{3}}[78]Q~[A-Za-z0-9_~.-]{{31,34}}{_END}", "7Q~", "8Q~"),
    _rule("digitalocean-token", rf"{_WORD}do[opr]_v1_[a-f0-9]{{64}}{_END}", "dop_v1_", "doo_v1_", "dor_v1_"),
    _rule("databricks-token", rf"{_WORD}dapi[a-f0-9]{{32}}(?:-\d)?{_END}", "dapi"),
    _rule("docker-token", rf"{_WORD}dckr_(?:pat|oat)_[A-Za-z0-9_-]{{27,}}", "dckr_"),
    _rule("discord-token",
          rf"{_WORD}[MNO][A-Za-z0-9_-]{{23,25}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,38}}{_END}", "."),
    _rule("discord-webhook", r"https://(?:\w{1,16}\.)?discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,}",
          "/api/webhooks/"),
    _rule("atlassian-token", rf"{_WORD}ATATT3[A-Za-z0-9_=-]{{50,}}", "ATATT3"),
    _rule("artifactory-token", rf"{_WORD}AKC[a-zA-Z0-9]{{60,}}", "AKC"),
    _rule("mailchimp-key", rf"{_WORD}[0-9a-f]{{32}}-us\d{{1,2}}{_END}", "-us"),
    _rule("mailgun-key", rf"{_WORD}key-[0-9a-f]{{32}}{_END}", "key-"),
    _rule("square-token", rf"{_WORD}(?:sq0(?:atp|csp|idp)-[0-9A-Za-z_-]{{22,43}}|EAAA[A-Za-z0-9_-]{{60}}){_END}",
          "sq0atp-", "sq0csp-", "sq0idp-", "EAAA"),
    _rule("shopify-token", rf"{_WORD}shp(?:at|ca|pa|ss)_[a-fA-F0-9]{{32}}{_END}",
          "shpat_", "shpca_", "shppa_", "shpss_"),
    _rule("grafana-token",
          rf"{_WORD}gl(?:sa_[A-Za-z0-9]{{32}}_[a-f0-9]{{8}}|c_[A-Za-z0-9+/=]{{32,}})",
          "glsa_", "glc_"),
    _rule("vault-token", rf"{_WORD}hv[sbr]\.[A-Za-z0-9_-]{{24,}}", "hvs.", "hvb.", "hvr."),
    _rule("terraform-token", rf"{_WORD}[A-Za-z0-9]{{14}}\.atlasv1\.[A-Za-z0-9_-]{{60,}}", ".atlasv1."),
    _rule("pulumi-token", rf"{_WORD}pul-[a-f0-9]{{40}}{_END}", "pul-"),
    _rule("linear-key", rf"{_WORD}lin_(?:api|oauth)_[A-Za-z0-9]{{40,}}", "lin_api_", "lin_oauth_"),
    _rule("notion-token", rf"{_WORD}(?:ntn_[A-Za-z0-9]{{40,}}|secret_[A-Za-z0-9]{{43}}{_END})", "ntn_", "secret_"),
    _rule("postman-key", rf"{_WORD}PMAK-[a-f0-9]{{24}}-[a-f0-9]{{34}}{_END}", "PMAK-"),
    _rule("new-relic-key", rf"{_WORD}NR(?:AK|JS|II|AL)-[A-Za-z0-9_-]{{19,}}", "NRAK-", "NRJS-", "NRII-", "NRAL-"),
    _rule("sentry-token", rf"{_WORD}sntr(?:ys|yu)_[A-Za-z0-9+/=_-]{{40,}}", "sntrys_", "sntryu_"),
    _rule("rubygems-key", rf"{_WORD}rubygems_[a-f0-9]{{48}}{_END}", "rubygems_"),
    _rule("supabase-key", rf"{_WORD}sb(?:p_[a-f0-9]{{40}}|_secret_[A-Za-z0-9_-]{{20,}})", "sbp_", "sb_secret_"),
    _rule("groq-key", rf"{_WORD}gsk_[A-Za-z0-9]{{48,}}", "gsk_"),
    _rule("replicate-token", rf"{_WORD}r8_[A-Za-z0-9]{{37}}{_END}", "r8_"),
    _rule("xai-key", rf"{_WORD}xai-[A-Za-z0-9]{{60,}}", "xai-"),
    _rule("perplexity-key", rf"{_WORD}pplx-[A-Za-z0-9]{{40,}}", "pplx-"),
    _rule("age-key", rf"{_WORD}AGE-SECRET-KEY-1[0-9A-Z]{{58}}", "AGE-SECRET-KEY-"),
    _rule("json-web-token", rf"{_WORD}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{8,}}", "eyJ"),
    _rule("password-in-url", r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>]{0,100}:(?P<secret>[^\s/@'\"<>]{1,200})@", "://"),
    _rule(
        "authorization",
        r"(?i:authorization)['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?i:bearer|basic|token)\s{1,3}"
        r"(?P<secret>[A-Za-z0-9._~+/-]{12,}={0,2})",
        "uthorization", "UTHORIZATION",
    ),
    _rule(
        "assigned-secret",
        r"(?i:(?<![A-Za-z])(?:[a-z0-9]{1,20}[_-]){0,4}"
        r"(?:password|passwd|passphrase|api[_-]?key|apikey|secret[_-]?key|client[_-]?secret|access[_-]?token"
        r"|auth[_-]?token|private[_-]?key|secret))['\"]?\s{0,3}(?::=|=|:)\s{0,3}"
        r"(?:(?P<quote>['\"])(?P<secret>[^'\"\s]{8,200})(?P=quote)"
        r"|(?P<bare>(?=[^\s'\"]{0,60}\d)(?=[^\s'\"]{0,60}[A-Za-z])[^\s'\"<>{}$,;()\[\]]{12,200}))",
        "assw", "ASSW", "assphrase", "ASSPHRASE", "ey", "EY", "ecret", "ECRET", "oken", "OKEN",
    ),
    _rule(
        # As people write it, and with a digit or sign as passwords have: "the password is required" is no secret.
        "told-password",
        r"(?i:(?<![A-Za-z])(?:password|passwd|passphrase|passcode|passwort|kennwort)"
        r"(?:\s{1,3}(?:is|was|ist|war|lautet)\s{0,2}:?\s{1,3}|\s{0,3}:\s{0,3}))['\"`“„]?"
        rf"(?P<secret>(?!{_NO_PASSWORD})(?={_PASSWORD}{{0,60}}[\d@#%^*+~])(?={_PASSWORD}{{0,60}}[A-Za-z])"
        rf"{_PASSWORD}{{5,199}}(?<![.!?:]))",
        "assw", "ASSW", "assphrase", "ASSPHRASE", "asscode", "ASSCODE", "ennwort", "ENNWORT",
    ),
)  # fmt: skip

_PLACEHOLDER = re.compile(
    r"(?i)\[redacted|x{6,}|\*{4,}|\.{4,}|your[_-]|example|placeholder|changeme|<[^>]*>|\$\{|%\(|\{\{"
)
_TEMPLATED = ("assigned-secret", "told-password", "password-in-url")


@dataclass(frozen=True, slots=True)
class Found:
    """A secret in a text: its kind and place, never itself."""

    name: str
    start: int
    end: int


def find_secrets(text: str) -> list[Found]:
    """What looks like a secret, in the order it stands; places do not overlap. Pure; linear in the text."""
    found: list[Found] = []
    for rule in RULES:
        if not any(mark in text for mark in rule.marks):
            continue
        for match in rule.pattern.finditer(text):
            start, end = match.span()
            for group in ("secret", "bare"):
                if group in rule.pattern.groupindex and match[group] is not None:
                    start, end = match.span(group)
            if rule.name in _TEMPLATED and _PLACEHOLDER.search(text[start:end]):
                continue  # a template tells how to write one
            if not any(one.start < end and start < one.end for one in found):
                found.append(Found(rule.name, start, end))
    return sorted(found, key=lambda one: one.start)


def redact(text: str) -> str:
    """The text with each secret replaced by its kind. Doing it twice changes nothing."""
    return _replaced(text, find_secrets(text))


def is_redacted(text: str) -> bool:
    """Whether something was taken out of this text, or it looks so."""
    return "[redacted: " in text


class Redacted:
    """A text with its secrets taken out, and where its parts stand in the text as it is: what was noted without a
    secret is found again in a document that holds it."""

    def __init__(self, text: str) -> None:
        found = find_secrets(text)
        self.text = _replaced(text, found)
        self._cuts: list[
            tuple[int, int, int]
        ] = []  # start and end here, and how much further on the text is after
        shift = 0
        for one in found:
            start = one.start - shift
            end = start + len(_mark(one.name))
            shift += one.end - one.start - (end - start)
            self._cuts.append((start, end, shift))

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Half-open place in the text as it is; a secret that is touched counts whole."""
        return self._at(start, False), self._at(end, True)

    def _at(self, place: int, is_end: bool) -> int:
        shift = 0
        for start, end, after in self._cuts:
            if place < start or (is_end and place == start):
                break
            if place < end and not (is_end and place == start):
                return end + after if is_end else start + shift
            shift = after
        return place + shift


def _mark(name: str) -> str:
    return f"[redacted: {name}]"


def _replaced(text: str, found: list[Found]) -> str:
    parts: list[str] = []
    at = 0
    for one in found:
        parts += (text[at : one.start], _mark(one.name))
        at = one.end
    return "".join(parts) + text[at:] if parts else text
