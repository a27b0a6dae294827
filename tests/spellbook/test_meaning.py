"""What is found by meaning is shown by the sentence that means it (design section 5: the third tier)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pensieve_mcp import building
from pensieve_mcp.spellbook.casting import cast
from pensieve_mcp.workspace import Workspace

Open = Callable[..., Workspace]

FILLER = (
    "The ferry leaves the northern quay at seven and comes back in the late afternoon of the same day. "
    "Its captain has painted the railing green, and nobody has complained about it so far. "
)
NEEDLE = "Marta Oyelaran breaks out in hives whenever she tastes peanuts. "


def test_a_hit_by_meaning_shows_the_sentence_and_not_the_lead(tmp_path: Path, open_workspace: Open) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "log.txt").write_text(FILLER + FILLER + NEEDLE + FILLER, encoding="utf-8")
    (folder / "other.txt").write_text(FILLER * 3, encoding="utf-8")
    with open_workspace(folder, tmp_path / "state", second_stage=True) as workspace:
        workspace.build_now()
        assert building.upgrade(workspace.corpus, workspace.plan(), seconds=300.0)
        workspace.index.warm()
        episode = workspace.episode("test")
        workspace.index._true.get(None)  # the question must be encoded by the model as well
        for mode in ("dense", "hybrid"):
            result = cast(
                episode, "searchEngine", {"keyword": "Which person has a nut allergy?", "mode": mode}
            )
            first = result.result["retrieved_chunks"][0]
            assert first["path"] == "docs/log.txt"
            assert NEEDLE.strip() in first["highlights"][0]
