"""Telling clients that notes, documents or the episode changed, in both eras of the protocol.

Older clients subscribe to single resources and are told of a changed list anyway; newer ones open a stream with
`subscriptions/listen`. Other processes write the same notebook, so it is looked at every second, but only while
somebody is subscribed. What is told is "look again"; nobody relies on being told once only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp_types import (
    EmptyResult,
    NotificationParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from pensieve_mcp.errors import PensieveError
from pensieve_mcp.server.opening import Opening
from pensieve_mcp.server.resources import DOCUMENTS, EPISODE, NOTES, note_uri
from pensieve_mcp.server.workers import Workers

if TYPE_CHECKING:
    from mcp.server.connection import Connection

    from pensieve_mcp.workspace import Workspace

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_LOOKING_SECONDS = 20.0  # for one look, waiting for a locked database included

Context = ServerRequestContext[Any, Any]


@dataclass(slots=True)
class _OlderClient:
    """A connection of the handshake era and the resources it subscribed to."""

    connection: Connection
    uris: set[str] = field(default_factory=set)


class Watch:
    """Knows who is subscribed and what was seen last. Lives on one event loop."""

    def __init__(self, opening: Opening, workers: Workers, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._opening = opening
        self._workers = workers
        self._look_seconds = look_seconds
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._streams = 0
        self._older: dict[int, _OlderClient] = {}
        self._wake = anyio.Event()
        self._looking = anyio.Lock()
        self._notes_seen: int | None = None
        self._documents_seen: object = None

    # -- handlers -------------------------------------------------------------------------------------------------

    async def greeted(self, ctx: Context, params: NotificationParams) -> None:
        """`notifications/initialized` of an older client: from now on it is told when the list of notes
        changes.
        """
        self._client(ctx)

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """`resources/subscribe`: what happens from the answer on is told."""
        self._client(ctx).uris.add(params.uri)
        await self._begin()
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._client(ctx).uris.discard(params.uri)
        return EmptyResult()

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """`subscriptions/listen`: the answer is the stream, which lasts until the client leaves."""
        self._streams += 1
        try:
            await self._begin()
            return await self._listen(ctx, params)
        finally:
            self._streams -= 1

    def _client(self, ctx: Context) -> _OlderClient:
        # The SDK shows handlers a session per request only; what lasts, and can be told something later, is behind it.
        connection = ctx.session._connection
        key = id(connection)
        if key not in self._older:
            self._older[key] = _OlderClient(connection)
            connection.exit_stack.callback(self._older.pop, key, None)
        return self._older[key]

    # -- looking --------------------------------------------------------------------------------------------------

    def _subscribed(self) -> bool:
        return self._streams > 0 or any(client.uris for client in self._older.values())

    async def _begin(self) -> None:
        await self._quietly(lambda: self.baseline(self._opening.workspace()))
        self._wake.set()

    def baseline(self, workspace: Workspace) -> None:
        """Remember how the notebook stands, so that what changes later is seen. Blocks; call from a worker."""
        if self._notes_seen is None:
            self._notes_seen = workspace.notebook.change_counter()
            self._documents_seen = _state_of_documents(workspace)

    def expect(self, workspace: Workspace) -> None:
        """A call is about to write a note: remember how the notebook stands if anybody would want to be told."""
        if self._streams or self._older:
            try:
                self.baseline(workspace)
            except Exception:  # being told of a change is no reason for the change to fail
                log.exception("subscriptions cannot look")

    async def run(self) -> None:
        """Look every second while somebody is subscribed; until cancelled."""
        while True:
            await self._wake.wait()
            while self._subscribed():
                await anyio.sleep(self._look_seconds)
                await self.look()
            self._wake = anyio.Event()

    async def look(self) -> None:
        """Tell whoever wants it what changed since the last look."""
        async with self._looking:
            changes: list[ServerEvent] = []
            await self._quietly(lambda: changes.extend(self._changes()))
            await self._tell(changes)

    def _changes(self) -> Iterable[ServerEvent]:
        workspace = self._opening.peek()
        if workspace is None or self._notes_seen is None:
            return []
        changes = workspace.notebook.changes_since(self._notes_seen)
        self._notes_seen = changes.counter
        events: list[ServerEvent] = []
        if changes.keys:
            # The list shows summaries, so any changed note changes it.
            events = [ResourceUpdated(NOTES), *(ResourceUpdated(note_uri(key)) for key in changes.keys)]
            events.append(ResourcesListChanged())
        if changes.plans:
            events.append(ResourceUpdated(EPISODE))
        documents = _state_of_documents(workspace)
        if documents != self._documents_seen:
            self._documents_seen = documents
            events.append(ResourceUpdated(DOCUMENTS))
        return events

    async def cast_done(self, *, wrote_notes: bool) -> None:
        """A call of ours was answered: its effects are told without waiting for the next look."""
        if not self._streams and not self._older:
            return
        if wrote_notes:
            await self.look()
        await self._tell([ResourceUpdated(EPISODE)])

    async def _tell(self, events: Iterable[ServerEvent]) -> None:
        for event in events:
            await self._bus.publish(event)
            for client in list(self._older.values()):
                if isinstance(event, ResourceUpdated):
                    if event.uri in client.uris:
                        await client.connection.send_resource_updated(event.uri)
                elif isinstance(event, ResourcesListChanged):
                    await client.connection.send_resource_list_changed()

    async def _quietly(self, function: Callable[[], None]) -> None:
        try:
            await self._workers.run("the look at the notebook", _LOOKING_SECONDS, function)
        except PensieveError as error:
            log.warning("subscriptions cannot look: %s", error)
        except Exception:  # the next look may go well; ending the watch would end the server
            log.exception("subscriptions cannot look")


def _state_of_documents(workspace: Workspace) -> object:
    progress = workspace.progress()
    return progress.state, progress.documents_done, progress.documents_total
