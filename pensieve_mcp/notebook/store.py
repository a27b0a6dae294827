"""The notebook: what was learned, kept with its sources and its past.

Every change is a revision in one immediate transaction, durable before it is confirmed; overwriting and
deleting keep what was there. Whether a quote really stands in its document is looked up by the spells,
which can see the corpus; here its state is only kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pensieve_mcp.errors import Miscast, NoSuchNote
from pensieve_mcp.notebook import checks, finding, planning, revoking, standing, watching
from pensieve_mcp.notebook.filtering import condition_of
from pensieve_mcp.notebook.lease import MergerLease
from pensieve_mcp.notebook.rows import current_of, expect, no_such, revision_of, twins
from pensieve_mcp.notebook.schema import (
    BARE_COLUMNS,
    BASIN,
    CURRENT,
    IN_FORCE,
    LINE_COLUMNS,
    changed,
    line_from,
    notes_from,
    put_note,
)
from pensieve_mcp.notebook.types import (
    PRIVATE,
    Action,
    Changes,
    Evidence,
    EvidenceKind,
    Neighbour,
    Note,
    NoteAnswer,
    NoteFilter,
    NoteLimits,
    NotePage,
    Plan,
    Proposal,
    Reinstated,
    Revision,
    Revoked,
    RevokedSource,
    Status,
    scratch,
)
from pensieve_mcp.notebook.watching import Watch
from pensieve_mcp.storage import Connections, shrink

if TYPE_CHECKING:
    from pensieve_mcp.fulltext import Nearness
    from pensieve_mcp.storage import Database

__all__ = ["BASIN", "Mode", "Notebook", "Watch"]

Mode = Literal["append", "overwrite", "delete", "merge"]

MAX_LIMIT = 10_000
BATCH = 1_000  # notes read at once when all are looked at


class Notebook:
    """The notebook of one workspace. Safe to share between threads; other processes may have their own."""

    def __init__(
        self,
        connections: Connections,
        *,
        redact: Callable[[str], str] | None = None,
        limits: NoteLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`connections` lead to `pensieve.db` and migrate `BASIN`. `redact` takes secrets out of every text
        before it is stored; what it changed is told in the note's warnings."""
        self._connections = connections
        self._redact = redact
        self.limits = limits or NoteLimits()
        self._clock = clock

    # --- writing --------------------------------------------------------------------------------------

    def write(
        self,
        key: str,
        summary: str,
        content: str,
        *,
        evidence: Sequence[Evidence] = (),
        applies_to: str = "",
        links: Sequence[str] = (),
        author: str = "",
        expect_revision: int | None = None,
        action: Action = "write",
        kind: EvidenceKind | Literal[""] = "",
        valid: str = "",
        valid_basis: str = "",
        observed: float | None = None,
        status: Status = "active",
        reason: str = "",
        merged_from: Sequence[str] = (),
        contests: int | None = None,
        weigh: bool = False,
    ) -> Note:
        """Store a note; under a key that exists it becomes the next revision, and the old one stays.

        With `weigh`, a claim on weaker evidence than the one in force does not take its place: it is stored, marked
        `needs review`, and both are shown (`contests`). `expect_revision` says that the old one was read, and decides.
        Raises Miscast for what a note cannot be, Conflict when `expect_revision` is not the current one
        (0: the key must be new), StorageError. Durable when it returns.
        """
        key = checks.checked_key(key, self.limits)
        note, told = self._prepared(
            Note(
                key=key,
                summary=summary,
                content=content,
                revision=0,
                created=0.0,
                updated=0.0,
                evidence=tuple(evidence),
                applies_to=checks.sound(applies_to, "applies_to"),
                links=tuple(links),
                author=checks.sound(author, "author"),
                kind=kind,
                valid=checks.sound(valid, "valid"),
                valid_basis=valid_basis,
                observed=observed,
                status=status,
                reason=checks.sound(reason, "reason"),
                merged_from=tuple(merged_from),
                contests=contests,
            )
        )
        with self._connections.writing() as db:
            current = current_of(db, key)
            expect(db, key, current, expect_revision)
            note, withdrawn = revoking.under_revocation(db, note)
            warnings = [*told, *withdrawn, *twins(db, key)]
            live = current is not None and not current.deleted
            if live and weigh and expect_revision is None:
                assert current is not None
                note, contest = _weighed(db, key, note, current)
                warnings += contest
            if live and action == "write" and note.contests is None:
                assert current is not None
                warnings.append(f"This replaced revision {current.revision}, which stays readable.")
            return self._put(db, replace(note, warnings=tuple(warnings)), current, action)

    def update(
        self,
        key: str,
        mode: Mode,
        new_content: str | None = None,
        new_summary: str | None = None,
        keys: Sequence[str] = (),
        expect_revision: int | None = None,
        *,
        evidence: Sequence[Evidence] = (),
        author: str = "",
        spare: str = "",
    ) -> Note:
        """Change a note. `append` adds a line's end and the content, `overwrite` puts it in place, `delete`
        hides the note (a revision like any other, `restore` undoes it), `merge` takes `keys` into it and
        deletes those; with `spare`, a reason, it marks them for review instead. Evidence given is added.

        Raises NoSuchNote with near names, Conflict that names both versions, Miscast, StorageError.
        """
        key = checks.checked_key(key, self.limits)
        author = checks.sound(author, "author")
        if mode not in ("append", "overwrite", "delete", "merge"):
            raise Miscast(
                f"{mode!r} is not a mode.",
                hint="Use append, overwrite, delete or merge.",
                slug="bad_mode",
            )
        if (
            mode in ("append", "overwrite")
            and new_content is None
            and (mode == "append" or new_summary is None)
        ):
            raise Miscast(
                f"Mode {mode} needs new_content.",
                hint="Give new_content, or use mode delete to remove the note.",
                slug="missing_content",
            )
        if mode == "merge" and not keys:
            raise Miscast(
                "Mode merge needs keys: the notes to take in.",
                hint=f'Give keys=["…", "…"]; they are merged into {key!r} and deleted.',
                slug="missing_keys",
            )
        with self._connections.writing() as db:
            current = current_of(db, key)
            if mode != "merge" and (current is None or current.deleted):
                raise no_such(db, key, current)
            expect(db, key, current, expect_revision)
            if mode == "merge":
                return self._merge(db, key, current, keys, new_content, new_summary, evidence, author, spare)
            assert current is not None  # told above
            if mode == "delete":
                gone = replace(current, deleted=True, author=author, warnings=())
                return self._put(db, gone, current, "delete")
            content = current.content if new_content is None else new_content
            if mode == "append" and current.content:
                content = f"{current.content}\n{new_content}"
            note, told = self._prepared(
                replace(
                    current,
                    content=content,
                    summary=current.summary if new_summary is None else new_summary,
                    evidence=(*current.evidence, *evidence),
                    author=author,
                    **_settled(current, mode, expect_revision),
                )
            )
            note, withdrawn = revoking.under_revocation(db, note)
            told += withdrawn
            return self._put(db, replace(note, warnings=tuple(told)), current, mode)

    def _merge(
        self,
        db: Database,
        key: str,
        current: Note | None,
        keys: Sequence[str],
        new_content: str | None,
        new_summary: str | None,
        evidence: Sequence[Evidence],
        author: str,
        spare: str = "",
    ) -> Note:
        wanted = [
            one for one in dict.fromkeys(checks.checked_key(k, self.limits) for k in keys) if one != key
        ]
        taken: list[Note] = []
        for one in wanted:
            other = current_of(db, one)
            if other is None or other.deleted:
                raise no_such(db, one, other)
            taken.append(other)
        if not taken:
            raise Miscast(
                f"Nothing is left to merge into {key!r} but itself.",
                hint="Name other keys.",
                slug="missing_keys",
            )
        target = current if current is not None and not current.deleted else None
        sources = ([target] if target is not None else []) + taken
        pieces = dict.fromkeys(piece for note in sources for piece in note.evidence)
        content = new_content
        if content is None:
            content = "\n\n".join(
                note.content if note is target else f"{note.key}: {note.summary}\n{note.content}"
                for note in sources
            )
        summary = new_summary
        if summary is None:
            summary = target.summary if target is not None else "; ".join(n.summary for n in taken)
        links = dict.fromkeys(link for note in sources for link in note.links if link != key)
        note, told = self._prepared(
            Note(
                key=key,
                summary=summary,
                content=content,
                revision=0,
                created=0.0,
                updated=0.0,
                evidence=(*pieces, *evidence),
                applies_to=sources[0].applies_to,
                links=tuple(link for link in links if link not in wanted),
                author=author,
                kind=max(sources, key=standing.strength).kind,
                merged_from=tuple(
                    dict.fromkeys([*(one for n in sources for one in n.merged_from), *(n.key for n in taken)])
                ),
                **_merged_status(sources),
            )
        )
        for other in taken:
            if spare:
                why = f"{spare}: it was merged into {key!r}"
                kept = replace(other, status="needs review", reason=why, author=author)
                self._put(db, kept, other, "status")
            else:
                self._put(db, replace(other, deleted=True, author=author, links=(key,)), other, "delete")
        return self._put(db, replace(note, warnings=tuple(told)), current, "merge")

    def restore(
        self, key: str, revision: int, *, author: str = "", expect_revision: int | None = None
    ) -> Note:
        """Make an old revision the current one again, as a new revision. Raises NoSuchNote, Conflict."""
        key = checks.checked_key(key, self.limits)
        with self._connections.writing() as db:
            current = current_of(db, key)
            expect(db, key, current, expect_revision)
            old = revision_of(db, key, revision)
            if old is None or old.deleted:
                raise no_such(db, key, current, revision)
            back = replace(old, author=checks.sound(author, "author"), contests=None)
            back, told = revoking.under_revocation(db, back)
            return self._put(db, replace(back, warnings=tuple(told)), current, "restore")

    def set_status(
        self,
        key: str,
        status: Status,
        reason: str = "",
        *,
        author: str = "",
        expect_revision: int | None = None,
    ) -> Note:
        """Say what a note is good for, as a new revision; `active` also ends a contest in favour of this revision.

        Raises NoSuchNote, Conflict, Miscast."""
        key = checks.checked_key(key, self.limits)
        with self._connections.writing() as db:
            current = current_of(db, key)
            if current is None or current.deleted:
                raise no_such(db, key, current)
            expect(db, key, current, expect_revision)
            note = replace(
                current,
                status=status,
                reason=checks.sound(reason, "reason") if status != "active" else "",
                contests=current.contests if status == "needs review" else None,
                author=checks.sound(author, "author"),
            )
            return self._put(db, note, current, "status")

    def settle(self, key: str, revision: int, *, author: str = "") -> Note:
        """End a contest: the claim of this revision (of the two shown) becomes the current one. Raises NoSuchNote."""
        current = self.current(key)
        if current is not None and current.revision == revision:
            return self.set_status(key, "active", author=author, expect_revision=revision)
        return self.restore(key, revision, author=author)

    # --- sources --------------------------------------------------------------------------------------

    def revoke(
        self, source: str, *, messages: frozenset[int] = frozenset(), author: str = "", reason: str = ""
    ) -> Revoked:
        """Withdraw a document, or a folder with all below it. Each note that rests on it says so, as a new
        revision; one that rests on nothing else becomes `revoked`, and no older value takes its place.

        `messages` are those that showed the source. What is noted from it later is marked as well.
        """
        with self._connections.writing() as db:
            return revoking.revoke(
                db,
                checks.sound(source, "source"),
                messages,
                author=checks.sound(author, "author"),
                reason=checks.sound(reason, "reason"),
                now=self._clock(),
                put=lambda note, current: self._put(db, note, current, "revoke"),
            )

    def allow(self, source: str) -> bool:
        """Take a revocation back for what is noted from now on; marked notes stay until `reinstate`. Answers whether
        there was one."""
        with self._connections.writing() as db:
            return db.conn.execute("DELETE FROM revoked_sources WHERE path = ?", (source,)).rowcount > 0

    def reinstate(self, source: str, *, author: str = "") -> Reinstated:
        """Set the notes that a withdrawal of this source marked back to what they were, as new revisions, where their
        evidence holds as it was looked at last; call it once the evidence was checked anew."""
        with self._connections.writing() as db:
            return revoking.reinstate(
                db,
                source,
                author=checks.sound(author, "author"),
                put=lambda note, current: self._put(db, note, current, "status"),
            )

    def revoked_sources(self) -> tuple[RevokedSource, ...]:
        with self._connections.reading() as db:
            return revoking.sources(db)

    def resting_on(self, source: str, messages: frozenset[int] = frozenset()) -> Revoked:
        """What `purge_source` would do, by key; nothing is changed."""
        with self._connections.reading() as db:
            return revoking.traced(db, source, messages)

    def evidence_paths(self) -> tuple[str, ...]:
        """Documents that the evidence of any revision of any note names, also those that are no longer there."""
        with self._connections.reading() as db:
            return revoking.paths_of(db)

    def quotes_of(self, source: str) -> tuple[str, ...]:
        """What any revision of any note quotes of a document, or of what lies below a folder."""
        with self._connections.reading() as db:
            return revoking.quotes_of(db, source)

    def purge_source(
        self, source: str, *, messages: frozenset[int] = frozenset(), author: str = ""
    ) -> Revoked:
        """Really remove the notes that rest on nothing but this source, and those merged from them, with all
        revisions; from others its quotes, in all revisions. Those say `needs review`. Raises StorageError while
        other processes keep the file busy."""
        with self._connections.writing() as db:
            done = revoking.purge(
                db,
                source,
                messages,
                put=lambda note, current: self._put(db, note, current, "revoke"),
                author=author,
            )
            for key in done.purged:
                self._remove(db, key)
        if done.purged or done.review:
            with self._connections.alone() as db:
                shrink(db)
        return done

    def purge(self, key: str) -> int:
        """Really remove a note with all its revisions, and their traces in the file. Answers how many there
        were. Raises NoSuchNote, StorageError while other processes keep the file busy."""
        key = checks.checked_key(key, self.limits)
        with self._connections.writing() as db:
            revisions = self._remove(db, key)
        with self._connections.alone() as db:
            shrink(db)
        return revisions

    @staticmethod
    def _remove(db: Database, key: str) -> int:
        row = db.conn.execute("DELETE FROM notes WHERE key = ? RETURNING id, revision", (key,)).fetchone()
        if row is None:
            raise no_such(db, key, None)
        db.conn.execute("DELETE FROM notes_text WHERE rowid = ?", (row[0],))
        # Deleted terms lie in old segments of the full text until those are merged.
        db.conn.execute("INSERT INTO notes_text (notes_text) VALUES ('optimize')")
        changed(db, "note", key)
        return int(row[1])

    def check_evidence(self, key: str, revision: int, states: Sequence[Evidence]) -> None:
        """Store what a later look at the evidence of a revision found; no new revision, the note is the same.

        `states` has one piece for each of the revision's, in order; state, detail, locator, chunk, span and
        time are taken. Raises NoSuchNote, ValueError when they do not fit.
        """
        with self._connections.writing() as db:
            note = revision_of(db, key, revision)
            if note is None:
                raise no_such(db, key, current_of(db, key), revision)
            if [piece.quote for piece in note.evidence] != [piece.quote for piece in states]:
                raise ValueError(f"the evidence is not that of {key!r} revision {revision}")
            self._store_states(db, key, revision, states, note.evidence)

    def check_many(self, checked: Sequence[tuple[str, int, Sequence[Evidence]]]) -> int:
        """`check_evidence` for (key, revision, states) of many notes in one transaction; a note that was changed
        meanwhile is left out. Answers how many were stored."""
        stored = 0
        with self._connections.writing() as db:
            for key, revision, states in checked:
                note = revision_of(db, key, revision)
                if note is None or [e.quote for e in note.evidence] != [e.quote for e in states]:
                    continue
                self._store_states(db, key, revision, states, note.evidence)
                stored += 1
        return stored

    def _store_states(
        self, db: Database, key: str, revision: int, states: Sequence[Evidence], before: Sequence[Evidence]
    ) -> None:
        clean = self._redact or (lambda text: text)
        db.conn.executemany(
            "UPDATE note_evidence SET state = ?, detail = ?, verified_at = ?, locator = ?, chunk_id = ?, "
            "span_start = ?, span_end = ?, path = ?, document_digest = ?, prefix = ?, suffix = ?, "
            "noted_path = ?, noted_locator = ?, basis = ? "
            "WHERE position = ? AND revision = ? AND note_id = (SELECT id FROM notes WHERE key = ?)",
            [
                (
                    piece.state,
                    clean(piece.detail),
                    piece.verified,
                    piece.locator,
                    piece.chunk_id,
                    None if piece.span is None else piece.span[0],
                    None if piece.span is None else piece.span[1],
                    piece.path,
                    piece.document_digest,
                    clean(piece.prefix),
                    clean(piece.suffix),
                    piece.noted_path,
                    piece.noted_locator,
                    piece.basis,
                    position,
                    revision,
                    key,
                )
                for position, piece in enumerate(states)
            ],
        )
        if any(new.state != old.state for new, old in zip(states, before, strict=True)):
            changed(db, "note", key)

    def _prepared(self, note: Note) -> tuple[Note, list[str]]:
        """The note checked and with its secrets taken out, and sentences about that."""
        hidden: dict[str, None] = {}

        def clean(text: str, where: str) -> str:
            if self._redact is None:
                return text
            cleaned = self._redact(text)
            if cleaned != text:
                hidden[where] = None
            return cleaned

        checks.checked_content(note.content, note.key, self.limits)  # before a regex runs over 10 MB
        evidence = tuple(
            replace(
                piece,
                quote=clean(piece.quote, "the evidence"),
                prefix=clean(piece.prefix, "the evidence"),
                suffix=clean(piece.suffix, "the evidence"),
                detail=clean(piece.detail, "the evidence"),
            )
            for piece in checks.checked_evidence(note.evidence, self.limits)
        )
        prepared = replace(
            note,
            summary=checks.checked_summary(
                clean(checks.sound(note.summary, "summary"), "the summary"), self.limits
            ),
            content=checks.checked_content(clean(note.content, "the content"), note.key, self.limits),
            evidence=evidence,
            links=checks.checked_links(note.links, self.limits),
        )
        told = [f"Secrets were taken out of {' and '.join(hidden)} before storing."] if hidden else []
        return prepared, told

    def _put(self, db: Database, note: Note, current: Note | None, action: Action) -> Note:
        now = self._clock()
        stored = replace(
            note,
            revision=1 if current is None else current.revision + 1,
            created=now if current is None else current.created,
            updated=now,
        )
        put_note(db, stored, action)
        return stored

    # --- consolidation --------------------------------------------------------------------------------

    def add_candidate(self, source: str, version: str, body: str) -> bool:
        """Keep what a conversation has to offer, once for each version of it. Answers whether it is new."""
        with self._connections.writing() as db:
            return (
                db.conn.execute(
                    "INSERT INTO candidates (source, version, body, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (source, version, body, self._clock()),
                ).rowcount
                > 0
            )

    def has_candidate(self, source: str, version: str) -> bool:
        """Whether this version of what a conversation has to offer is kept, taken in or not."""
        with self._connections.reading() as db:
            row = db.conn.execute(
                "SELECT 1 FROM candidates WHERE source = ? AND version = ?", (source, version)
            ).fetchone()
        return row is not None

    def candidates(self) -> list[tuple[str, str, str]]:
        """(source, version, body) that no merger took in yet, the newest version of each source."""
        with self._connections.reading() as db:
            rows = db.conn.execute(
                "SELECT source, version, body FROM candidates c WHERE published = 0 AND at = "
                "(SELECT max(at) FROM candidates d WHERE d.source = c.source AND d.published = 0) "
                "GROUP BY source ORDER BY source"
            )
            return [(row[0], row[1], row[2]) for row in rows]

    def told_conflicts(self) -> frozenset[str]:
        """Pairs of notes that a reader was told of, by `Conflict.pair`."""
        with self._connections.reading() as db:
            return frozenset(row[0] for row in db.conn.execute("SELECT pair FROM told_conflicts"))

    def forget_candidates(self, hides: Callable[[str], bool]) -> None:
        """Remove what is kept of conversations that tells what `hides` names; a later merger looks again."""
        with self._connections.writing() as db:
            for source, version, body in db.conn.execute(
                "SELECT source, version, body FROM candidates"
            ).fetchall():
                if hides(body):
                    db.conn.execute(
                        "DELETE FROM candidates WHERE source = ? AND version = ?", (source, version)
                    )
        with self._connections.alone() as db:
            shrink(db)

    def forget_conversations(self, episode_ids: Sequence[int], *, plans: bool = True) -> None:
        """Really remove what is kept of conversations: scratch notes, plans, and what a merger would look at. Other
        notes stay."""
        with self._connections.writing() as db:
            for episode_id in episode_ids:
                top = scratch(episode_id)
                own = db.conn.execute("SELECT key FROM notes WHERE substr(key, 1, ?) = ?", (len(top), top))
                for (key,) in own.fetchall():
                    self._remove(db, key)
                db.conn.execute("DELETE FROM candidates WHERE source = ?", (f"episode:{episode_id}",))
                if plans:
                    planning.remove(db, str(episode_id))
        with self._connections.alone() as db:
            shrink(db)

    def take_lease(
        self, owner: str | None = None, *, stale_seconds: float | None = None
    ) -> MergerLease | None:
        """The right to consolidate, or None while another living process has it."""
        return MergerLease.take(self._connections, owner=owner, stale_seconds=stale_seconds)

    def publish(
        self,
        lease: MergerLease,
        proposals: Sequence[Proposal],
        *,
        taken: Sequence[tuple[str, str]] = (),
        author: str = "merger",
    ) -> list[Proposal]:
        """Make all changes that still fit, in one transaction under the lease; answers those that were made.
        `taken` are the (source, version) of the candidates that were thought of.

        Raises MergerLeaseLost, and changes nothing, when the lease is another's by now.
        """
        made: list[Proposal] = []
        with self._connections.writing() as db:
            lease.check(db)
            fitting = [
                proposal
                for proposal in proposals
                if all(_live_revision(current_of(db, key)) == revision for key, revision in proposal.expected)
            ]
            for proposal in fitting:
                self._make(db, proposal, author)
                made.append(proposal)
                if proposal.pair:
                    told = (proposal.pair, self._clock())
                    db.conn.execute("INSERT OR IGNORE INTO told_conflicts VALUES (?, ?)", told)
            db.conn.executemany(
                "UPDATE candidates SET published = ?1 WHERE published = 0 AND source = ?2 AND at <= "
                "(SELECT at FROM candidates WHERE source = ?2 AND version = ?3)",
                [(lease.fence, source, version) for source, version in taken],
            )
        return made

    def _make(self, db: Database, proposal: Proposal, author: str) -> None:
        current = current_of(db, proposal.key)
        if proposal.what == "merge":
            self._merge(
                db, proposal.key, current, proposal.keys, proposal.content, proposal.summary, (), author
            )
            return
        if proposal.what == "mark":
            assert current is not None  # its revision was expected
            note = replace(current, status=proposal.status, reason=proposal.reason, author=author)
            self._put(db, note, current, "status")
            return
        note, _ = self._prepared(
            Note(
                key=proposal.key,
                summary=proposal.summary,
                content=proposal.content,
                revision=0,
                created=0.0,
                updated=0.0,
                evidence=proposal.evidence,
                links=proposal.links,
                author=author,
                status=proposal.status,
                reason=proposal.reason,
            )
        )
        note, _ = revoking.under_revocation(db, note)
        self._put(db, note, current, "write")

    # --- reading --------------------------------------------------------------------------------------

    def read(self, key: str, revision: int | None = None) -> Note:
        """The note, or how it was at a revision. Raises NoSuchNote, with near names or the way to restore."""
        key = checks.checked_key(key, self.limits)
        with self._connections.reading() as db:
            current = current_of(db, key)
            if revision is not None and current is not None:
                note = revision_of(db, key, revision)
                if note is None:
                    raise no_such(db, key, current, revision)
                return note
            if current is None or current.deleted:
                raise no_such(db, key, current)
            return current

    def current(self, key: str) -> Note | None:
        """The current revision even where it is a deletion; None when the key was never used. Raises
        Miscast."""
        key = checks.checked_key(key, self.limits)
        with self._connections.reading() as db:
            return current_of(db, key)

    def in_force(self, note: Note) -> Note:
        """The claim that counts: the note itself, or the revision on better evidence that it contests."""
        if note.contests is None:
            return note
        with self._connections.reading() as db:
            return revision_of(db, note.key, note.contests) or note

    def list(
        self,
        prefix: str = "",
        cursor: str | None = None,
        limit: int = 200,
        *,
        only: NoteFilter | None = None,
    ) -> NotePage:
        """Keys and summaries in the order of keys, those that begin with `prefix`. Any text is answered."""
        prefix, after = _plain(prefix), _plain(cursor or "")
        limit = min(max(1, limit), MAX_LIMIT)
        if prefix.startswith(PRIVATE):
            only = replace(only or NoteFilter(), private=True)
        more, values = condition_of(only)
        where = f"n.deleted = 0 AND substr(n.key, 1, ?) = ?{more}"
        named = (len(prefix), prefix, *values)
        with self._connections.reading() as db:
            total = db.conn.execute(f"SELECT count(*) {IN_FORCE} WHERE {where}", named).fetchone()[0]
            rows = db.conn.execute(
                f"SELECT {LINE_COLUMNS} {IN_FORCE} WHERE {where} AND n.key > ? ORDER BY n.key LIMIT ?",
                (*named, after, limit + 1),
            ).fetchall()
        lines = tuple(line_from(row) for row in rows[:limit])
        return NotePage(lines, int(total), lines[-1].key if len(rows) > limit else None)

    def all_notes(self, *, private: bool = True) -> Iterator[Note]:
        """Every note that is not deleted, by key; read in pages, so that it may be long."""
        cursor: str | None = None
        while True:
            page = self.list(cursor=cursor, only=NoteFilter(private=private))
            for line in page.lines:
                try:
                    yield self.read(line.key)
                except NoSuchNote:  # deleted by somebody meanwhile
                    continue
            cursor = page.cursor
            if cursor is None:
                return

    def evidence_of_all(self) -> Iterator[Note]:
        """Every note that is not deleted, without its content, by key: what a look at all evidence needs."""
        after = ""
        while True:
            with self._connections.reading() as db:
                rows = db.conn.execute(
                    f"SELECT {BARE_COLUMNS} {CURRENT} WHERE n.deleted = 0 AND n.key > ? ORDER BY n.key LIMIT ?",
                    (after, BATCH),
                ).fetchall()
                notes = notes_from(db, rows)
            yield from notes
            if len(rows) < BATCH:
                return
            after = rows[-1][0]

    def verified(self, checked: Sequence[tuple[str, int]], at: float) -> None:
        """Store that the evidence of these (key, revision) was found unchanged at that time."""
        with self._connections.writing() as db:
            db.conn.executemany(
                "UPDATE note_evidence SET verified_at = ? "
                "WHERE note_id = (SELECT id FROM notes WHERE key = ?) AND revision = ?",
                [(at, key, revision) for key, revision in checked],
            )

    def history(self, key: str) -> tuple[Revision, ...]:
        """All revisions, the oldest first; of deleted notes too. Raises NoSuchNote."""
        key = checks.checked_key(key, self.limits)
        with self._connections.reading() as db:
            rows = db.conn.execute(
                "SELECT n.key, r.revision, r.at, r.author, r.action, r.summary, length(r.content) "
                "FROM notes n JOIN note_revisions r ON r.note_id = n.id WHERE n.key = ? ORDER BY r.revision",
                (key,),
            ).fetchall()
            if not rows:
                raise no_such(db, key, None)
        return tuple(Revision(*row) for row in rows)

    # --- finding --------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        limit: int = 20,
        *,
        only: NoteFilter | None = None,
        near: Nearness | None = None,
        words: bool = True,
        strict: bool = True,
    ) -> NoteAnswer:
        """See `finding.search`: by words, with `near` by meaning as well, without `words` by meaning alone; unless
        `strict`, any word of the query is enough."""
        return finding.search(
            self._connections,
            query,
            min(max(0, limit), MAX_LIMIT),
            only=only,
            near=near,
            words=words,
            strict=strict,
        )

    def neighbours(self, key: str, limit: int = finding.NEIGHBOURS) -> tuple[Neighbour, ...]:
        """Notes near this one: those it links to, those that link to it, those that rest on the same place."""
        with self._connections.reading() as db:
            return finding.neighbours(db, checks.checked_key(key, self.limits), limit)

    def texts(self, keys: Sequence[str]) -> Iterator[tuple[int, str, str | None]]:
        """(row, head, content) of notes by key, for whoever compares meanings; content None: it is not there."""
        with self._connections.reading() as db:
            rows = finding.texts(db, keys)
        yield from rows

    def birth(self) -> str:
        """What tells this notebook from another that took its place: when its first note was made."""
        with self._connections.reading() as db:
            row = db.conn.execute("SELECT id, created_at FROM notes ORDER BY id LIMIT 1").fetchone()
        return f"{row[0]}:{row[1]!r}" if row else ""

    # --- plan -----------------------------------------------------------------------------------------

    def plan(
        self,
        goal: str | None = None,
        constraints: Sequence[str] | None = None,
        steps: Sequence[str] | None = None,
        next: str | None = None,
        *,
        scope: str = "",
        author: str = "",
    ) -> Plan:
        """Change what is not None, as a new revision. `scope` parts the plans of conversations.

        Raises Miscast when it is too long to head every window, StorageError.
        """
        with self._connections.writing() as db:
            return planning.change(
                db,
                scope,
                goal=goal,
                constraints=constraints,
                steps=steps,
                next=next,
                author=author,
                now=self._clock(),
                most_chars=self.limits.plan_chars,
                clean=self._redact or (lambda text: text),
            )

    def read_plan(self, revision: int | None = None, *, scope: str = "") -> Plan:
        """The plan now, or at a revision; an empty one with revision 0 when there is none."""
        with self._connections.reading() as db:
            return planning.read(db, scope, revision)

    def purge_plan(self, *, scope: str = "") -> int:
        """Really remove a plan with its past. Answers how many revisions there were. Raises StorageError."""
        with self._connections.writing() as db:
            count = planning.remove(db, scope)
        with self._connections.alone() as db:
            shrink(db)
        return count

    # --- subscriptions ----------------------------------------------------------------------------------

    def change_counter(self) -> int:
        """Grows with every change of any process. Cheap."""
        with self._connections.reading() as db:
            return watching.counter(db)

    def changes_since(self, counter: int, limit: int = -1) -> Changes:
        """What changed after `counter`, each name once; with `limit` of so many changes, the first ones."""
        with self._connections.reading() as db:
            return watching.since(db, counter, limit)

    def watch(self) -> Watch:
        """For polling: an own connection, whose look costs a few microseconds while nothing was written."""
        return Watch(self._connections)


def _live_revision(note: Note | None) -> int:
    return 0 if note is None or note.deleted else note.revision


def _weighed(db: Database, key: str, note: Note, current: Note) -> tuple[Note, list[str]]:
    """A new claim against the one in force: as it is, or marked as contesting it."""
    force = current if current.contests is None else revision_of(db, key, current.contests) or current
    if not (why := standing.contested(note, force)):
        return note, []
    return replace(note, status="needs review", reason=why, contests=force.revision), [
        f"Stored, but revision {force.revision} ({force.summary!r}) stays in force: {why}. readNote shows both; "
        "add evidence, or settle it with updateNote mode overwrite and expect_revision."
    ]


def _settled(current: Note, mode: Mode, expect_revision: int | None) -> dict[str, Any]:
    """An overwrite by somebody who read both claims ends a contest; anything else leaves it."""
    if current.contests is not None and mode == "overwrite" and expect_revision is not None:
        return {"contests": None, "status": "active", "reason": ""}
    return {}


def _merged_status(sources: Sequence[Note]) -> dict[str, Any]:
    """A merged note is no better than what went into it."""
    doubtful = [note for note in sources if note.status in ("revoked", "needs review")]
    if not doubtful:
        return {}
    names = ", ".join(repr(note.key) for note in doubtful)
    return {"status": "needs review", "reason": f"merged from {names}, which needed review"}


def _plain(text: str) -> str:
    """For comparing only: what no key can hold becomes U+FFFD."""
    return text.encode("utf-8", "replace").decode("utf-8")
