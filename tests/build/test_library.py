"""The sample library through the real readers and the real index: every phrase is found, with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pensieve_mcp.corpus.quotes import find_in_document
from pensieve_mcp.corpus.types import ChunkSet
from pensieve_mcp.workspace import Workspace

LIBRARY = Path(__file__).parents[1] / "library"
EXPECTED = json.loads((LIBRARY / "expected.json").read_text(encoding="utf-8"))["files"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    with Workspace.open(
        [LIBRARY / "files"], state=state, environment={"PENSIEVE_HOME": str(state)}, builder="inline"
    ) as workspace:
        assert workspace.build_now().state == "ready"
        yield workspace.corpus


def readable(corpus):
    for name, wanted in EXPECTED.items():
        if wanted.get("expect") != "skip" and corpus.has_document(f"files/{name}"):
            yield name, wanted, corpus.document(f"files/{name}")


def test_all_is_read_but_what_cannot_be(corpus):
    skipped = {s.path.removeprefix("files/"): s for s in corpus.skipped(limit=500)[0]}
    for name, wanted in EXPECTED.items():
        if wanted.get("expect") == "skip":
            told = f"{skipped[name].reason} {skipped[name].detail}".replace("_", " ")
            assert any(reason in told for reason in wanted["reasons"]), (name, told)
        elif not wanted.get("legacy") and wanted.get("expect") != "either":
            assert corpus.has_document(f"files/{name}"), (name, skipped.get(name))


def test_every_phrase_lies_in_a_chunk(corpus):
    for name, wanted, document in readable(corpus):
        for phrase in wanted["phrases"]:
            places = find_in_document(corpus, document.document_id, phrase, chunk_set=ChunkSet())
            assert places and places[0].chunk_id is not None, (name, phrase)


def test_places_are_those_a_person_would_look_up(corpus):
    for name, wanted, document in readable(corpus):
        for kind, pattern in (
            ("pages", r"(?:p\.|pp\.|slides?|notes of slide) {}\b"),
            ("lines", r"lines? {}\b"),
            ("section", "§ {}"),
            ("cells", r"!{}\b"),
        ):
            for phrase, place in wanted.get(kind, {}).items():
                found = [p.locator for p in find_in_document(corpus, document.document_id, phrase)]
                assert any(re.search(pattern.format(re.escape(str(place))), told) for told in found), (
                    name,
                    phrase,
                    place,
                    found,
                )
