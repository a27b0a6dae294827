"""The tables of `corpus.db`: derived, may be deleted, built anew from the folders.

What shaped them stands in `fingerprint`; a mismatch says why the corpus is stale. A document becomes visible in the
one transaction that writes it whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pensieve_mcp.corpus.chunking import CHUNKER
from pensieve_mcp.storage import Basin, Migration
from pensieve_mcp.tokens import COUNTER

MIGRATIONS = (
    Migration(
        "corpus",
        "Documents with their texts, passages and chunks; what was skipped; the state of the build.",
        """
        CREATE TABLE corpus_facts (
            name TEXT PRIMARY KEY,          -- fingerprint, generation, revision, looked_at …
            value TEXT NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE documents (
            document_id INTEGER PRIMARY KEY,
            root TEXT NOT NULL,
            raw BLOB NOT NULL,              -- exact relative path
            path TEXT NOT NULL,             -- root/relative/file, for people
            digest BLOB NOT NULL,           -- sha256 of the file
            size_bytes INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL,
            ctime_ns INTEGER NOT NULL,
            inode BLOB NOT NULL,            -- as text: Windows has 64 bits without sign
            seen_ns INTEGER NOT NULL,       -- start of the walk that saw this stat
            media_type TEXT NOT NULL,
            title TEXT NOT NULL,
            tokens INTEGER NOT NULL,
            chars INTEGER NOT NULL,
            status TEXT NOT NULL,           -- ok, partial
            encoding TEXT,
            extractor TEXT NOT NULL,
            units INTEGER NOT NULL,
            warnings TEXT NOT NULL,         -- JSON list
            language TEXT NOT NULL,         -- guessed, may be empty
            verbatim INTEGER NOT NULL,      -- 1: line n of the text is line n of the file
            first_passage INTEGER NOT NULL, -- passages are numbered from here; also the version of this row
            passages INTEGER NOT NULL,
            indexed INTEGER NOT NULL,       -- generation of the index that holds it, 0: not yet
            UNIQUE (root, raw)
        );
        CREATE UNIQUE INDEX documents_by_path ON documents (path, document_id);
        CREATE UNIQUE INDEX documents_by_passage ON documents (first_passage);
        CREATE INDEX documents_to_index ON documents (indexed);
        CREATE TABLE layouts (
            document_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
            borders BLOB NOT NULL,          -- passage borders, see layout.py
            layout BLOB NOT NULL            -- units and blocks, see layout.py
        );
        CREATE TABLE texts (
            document_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
            page INTEGER NOT NULL,          -- 65,536 characters each
            first_line INTEGER NOT NULL,
            text BLOB NOT NULL,
            PRIMARY KEY (document_id, page)
        );
        CREATE TABLE chunk_sets (
            set_id INTEGER PRIMARY KEY,
            size_tokens INTEGER NOT NULL,
            overlap_tokens INTEGER NOT NULL,
            UNIQUE (size_tokens, overlap_tokens)
        );
        CREATE TABLE chunks (
            chunk_id INTEGER PRIMARY KEY,
            set_id INTEGER NOT NULL,
            document_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
            place INTEGER NOT NULL,         -- number within the document
            start INTEGER NOT NULL,
            "end" INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            digest BLOB NOT NULL
        );
        CREATE UNIQUE INDEX chunks_by_place ON chunks (document_id, set_id, place);
        CREATE UNIQUE INDEX chunks_by_start ON chunks (document_id, set_id, start);
        CREATE TABLE set_documents (
            set_id INTEGER NOT NULL,
            document_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
            chunks INTEGER NOT NULL,
            PRIMARY KEY (set_id, document_id)
        ) WITHOUT ROWID;
        CREATE INDEX set_documents_by_document ON set_documents (document_id);
        CREATE TABLE unindexed (
            document_id INTEGER PRIMARY KEY -- gone here, not yet gone from the index
        );
        CREATE TABLE skipped (
            path TEXT NOT NULL,
            root TEXT NOT NULL,
            raw BLOB,
            reason TEXT NOT NULL,
            detail TEXT NOT NULL,
            folder INTEGER NOT NULL,
            walk INTEGER NOT NULL,          -- 1: the walk passed it over, 0: reading it failed
            size_bytes INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode BLOB, seen_ns INTEGER,
            digest BLOB,                    -- of a file whose reading failed
            extractors TEXT NOT NULL,       -- fingerprint of the readers it failed with
            PRIMARY KEY (path, walk)
        );
        CREATE INDEX skipped_by_digest ON skipped (digest);
        CREATE TABLE lease (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            token TEXT NOT NULL,
            owner TEXT NOT NULL,
            fence INTEGER NOT NULL,         -- grows with every owner
            beat REAL NOT NULL              -- seconds since the epoch; 0 when given back
        );
        CREATE TABLE progress (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            told TEXT NOT NULL              -- JSON, see BuildProgress
        );
        """,
    ),
    Migration(
        "lease tells what it is for",
        "A build must not be refused because another process fills idle time with the third tier.",
        """
        ALTER TABLE lease ADD COLUMN doing TEXT NOT NULL DEFAULT 'build';   -- build, upgrade
        ALTER TABLE lease ADD COLUMN wanted INTEGER NOT NULL DEFAULT 0;     -- 1: somebody waits to build
        """,
    ),
)
BASIN = Basin("corpus", MIGRATIONS, 1)


def fingerprint(extractors: str) -> str:
    """All that shaped the corpus, as JSON with sorted keys."""
    return json.dumps({"chunker": CHUNKER, "counter": COUNTER, "extractors": extractors}, sort_keys=True)


def why_stale(stored: str, ours: str) -> str:
    """What differs between two fingerprints, as a sentence; empty when they agree."""
    if stored == ours:
        return ""
    before: Mapping[str, str] = json.loads(stored)
    after: Mapping[str, str] = json.loads(ours)
    told = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, "none"), after.get(name, "none")
        if old == new:
            continue
        if name == "extractors":
            gone, come = set(old.split(";")), set(new.split(";"))
            told.append(f"readers changed ({', '.join(sorted(come - gone) or sorted(gone - come))})")
        else:
            told.append(f"{name} changed from {old} to {new}")
    return "The corpus is stale: " + "; ".join(told) + "."
