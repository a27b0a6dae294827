"""The commands in README.md and SKILL.md are run as they stand, on a folder that stands in for the reader's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from .conftest import Pensieve

ROOT = Path(__file__).resolve().parents[2]


def commands(page: str) -> list[list[str]]:
    """All `pensieve …` lines of the page's code blocks, split as a shell would."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.S)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("pensieve ")]


def test_the_tour_of_the_readme_runs(pensieve: Pensieve, documents: Path) -> None:
    tour = [words for words in commands("README.md") if words[0] not in ("install", "ask", "model")]

    assert [words[0] for words in tour] == [
        "index", "search", "read", "note", "note", "try", "skipped", "doctor",
    ]  # fmt: skip
    for words in tour:
        said = pensieve(*(str(documents) if word == "~/Documents" else word for word in words))
        assert said.code == 0, f"{' '.join(words)}: {said.err}"
        assert "unsupported" not in said.err, f"{' '.join(words)}: {said.err}"


def test_the_question_of_the_readme_is_asked(pensieve: Pensieve, documents: Path) -> None:
    """These documents do not answer it, which is said, with the exit code for that."""
    (line,) = (words for words in commands("README.md") if words[0] == "ask")

    said = pensieve(*(str(documents) if word == "~/library" else word for word in line))

    assert (said.code, "not found" in said.out.lower()) == (1, True), said.err


def test_the_hosts_of_the_readme_are_set_up_by_its_commands(
    pensieve: Pensieve, documents: Path, home: Path
) -> None:
    """One block for every host we know, each of which works as it stands."""
    from pensieve_mcp.hosts.catalog import HOSTS

    lines = [words for words in commands("README.md") if words[0] == "install"]

    assert {words[1] for words in lines} == set(HOSTS)
    for words in lines:
        said = pensieve(*(str(documents) if word == "~/Documents" else word for word in words))
        assert said.code == 0 and "set up." in said.err, f"{' '.join(words)}: {said.err}"


def test_the_cycle_of_the_skill_runs(pensieve: Pensieve, documents: Path) -> None:
    """Numbers stand for what the calls before gave: c48 for the best hit, m4 for what was read, E for the episode."""
    names = {"~/Documents/contracts": str(documents)}
    cycle = commands("SKILL.md")

    assert [words[1] for words in cycle if words[0] == "cast"] == [
        "searchEngine", "readChunk", "note", "deleteContext", "finish",
    ]  # fmt: skip
    for words in cycle:
        given = []
        for word in words:
            for name, real in names.items():
                word = re.sub(rf"(?<![\w]){re.escape(name)}(?!\w)", lambda _, real=real: real, word)  # type: ignore[misc]
            given.append(word)
        said = pensieve(*given)
        assert said.code == 0, f"{given}: {said.out}{said.err}"
        if words[1:2] == ["searchEngine"]:
            names["E"] = re.search(r"Episode (\w+)", said.err)[1]  # type: ignore[index]
            number = re.search(r"^c(\d+) ", said.out, re.M)[1]  # type: ignore[index]
            names |= {"48": number, "c48": f"c{number}"}
        if words[1:2] == ["readChunk"]:
            names["m4"] = said.out.split(" · ", 1)[0]
        if words[1:2] == ["note"]:
            assert "1 ok" in said.out, "the quote of the example is found"


def test_the_skill_is_a_valid_agent_skill() -> None:
    """Name: 1 to 64 of a-z, 0-9 and hyphen; description: up to 1,024 characters, what it does and when."""
    text = (ROOT / "SKILL.md").read_text(encoding="utf-8")
    head = re.match(r"---\n(.*?)\n---\n", text, re.S)
    assert head
    fields = dict(line.split(": ", 1) for line in head[1].splitlines())

    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert fields["name"] == "pensieve"
    assert 40 < len(fields["description"]) <= 1024
    assert "Use " in fields["description"]
    assert not set(fields) - {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert len(text.splitlines()) < 500
