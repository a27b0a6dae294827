"""The protocol's surface: spells as tools, with resources, prompts and live instructions. The only file that
knows the SDK's server, beside `watching.py` (its subscriptions) and `web.py` (its HTTP transport).

The low-level server is used, since only it publishes our schemas as they are and serves the subscriptions of
older clients.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

from pensieve_mcp.budget import PLUGIN_ARGUMENT, PluginSight
from pensieve_mcp.episode import Approval
from pensieve_mcp.errors import Miscast, PensieveError
from pensieve_mcp.server import approving
from pensieve_mcp.server.answers import answer, output_schema, refusal
from pensieve_mcp.server.episodes import HANDLE_ARGUMENT, Episodes, Origin
from pensieve_mcp.server.idling import Idling
from pensieve_mcp.server.instructions import instructions
from pensieve_mcp.server.opening import Opening
from pensieve_mcp.server.options import version
from pensieve_mcp.server.prompts import CARDS, Prompts
from pensieve_mcp.server.resources import Resources
from pensieve_mcp.server.watching import Watch
from pensieve_mcp.server.workers import Workers
from pensieve_mcp.settings import Settings
from pensieve_mcp.spellbook.casting import CastResult, cast
from pensieve_mcp.spellbook.registry import Spell, spellbook
from pensieve_mcp.spellbook.wording import one_line

log = logging.getLogger(__name__)

SERVER_NAME = "pensieve"
PROGRESS_SECONDS = 0.5
QUIET_SECONDS = 5.0  # a client that lists no tools: begin without it
SETTLE_SECONDS = 0.3  # after the tools were listed: the answer leaves first
SESSION_HEADER = "mcp-session-id"
STATELESS_VERSION = "2026-07-28"
RESOURCE_NOT_FOUND = -32002  # through 2025-11-25; then it is invalid params

ASK = "askStateLM"
FIRST_BUILD_SECONDS = 2.0  # as long as buildIndex waits
FIRST_RESULT_SECONDS = 20.0  # a loaded machine needs some for its first process; every host waits 30 and more
LOOK_AT_DOCUMENTS = frozenset({"analyzeText", "searchEngine", "readChunk", ASK})

EPISODE_PROPERTY = {"type": "string", "description": "The handle your first result told."}

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")


class PensieveServer(Server[Any]):
    """The SDK's server, saying that our list of resources changes and composing its instructions anew each
    time.
    """

    def __init__(self, opening: Opening, surface: Surface) -> None:
        super().__init__(
            SERVER_NAME,
            version=version(),
            title="Pensieve",
            description="Search, read, note and forget over folders of documents.",
            cache_hints={
                "tools/list": CacheHint(ttl_ms=3_600_000, scope="public"),
                "prompts/list": CacheHint(ttl_ms=3_600_000, scope="public"),
            },
            lifespan=surface.lifespan,
            get_tool_input_schema=surface.input_schema,
            on_list_tools=surface.list_tools,
            on_call_tool=surface.call_tool,
            on_list_resources=surface.list_resources,
            on_list_resource_templates=surface.list_templates,
            on_read_resource=surface.read_resource,
            on_subscribe_resource=surface.watch.subscribe,
            on_unsubscribe_resource=surface.watch.unsubscribe,
            on_subscriptions_listen=surface.watch.listen,
            on_list_prompts=surface.list_prompts,
            on_get_prompt=surface.get_prompt,
            on_completion=surface.complete,
        )
        self._opening = opening
        self._explicit = surface.explicit
        self.add_notification_handler(
            "notifications/initialized", types.NotificationParams, surface.watch.greeted
        )
        self.middleware.append(self._refresh)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        self.instructions = instructions(self._opening, explicit=self._explicit)
        return super().create_initialization_options(
            notification_options or NotificationOptions(resources_changed=True),
            experimental_capabilities,
            extensions,
        )

    async def _refresh(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "server/discover":
            self.instructions = instructions(self._opening, explicit=self._explicit)
        return await call_next(ctx)


class Surface:
    """The handlers. `explicit` is HTTP, where a call names its episode."""

    def __init__(
        self,
        opening: Opening,
        environment: Mapping[str, str],
        *,
        explicit: bool = False,
        structured: bool = False,
        look_seconds: float = 1.0,
    ) -> None:
        self.opening = opening
        # Over HTTP our environment is not the client's: a session named there is somebody else's.
        self._environment = {} if explicit else environment
        self.explicit = explicit
        self._structured = structured
        self.workers = Workers()
        self._episodes = Episodes(opening, explicit=explicit)
        self._resources = Resources(opening, self._episodes, explicit=explicit)
        self._prompts = Prompts(opening, self._episodes)
        self.watch = Watch(opening, self.workers, look_seconds=look_seconds)
        self._book = spellbook(asking=True)
        self._tools = {spell.name: self._tool(spell) for spell in self._book.values()}
        self._listed = anyio.Event()
        self._answering = 0
        self.idling = Idling(opening, environment, busy=lambda: self._answering > 0)
        self.server = PensieveServer(opening, self)

    # -- life -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lifespan(self, server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        """Beside the serving: subscriptions are watched, and the workspace opens once the first answers are
        out.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self.watch.run)
            group.start_soon(self._begin)
            if self.explicit:
                group.start_soon(self.idling.run)
            try:
                yield {}
            finally:
                group.cancel_scope.cancel()

    async def _begin(self) -> None:
        with anyio.move_on_after(QUIET_SECONDS):
            await self._listed.wait()
            await anyio.sleep(SETTLE_SECONDS)
        await anyio.to_thread.run_sync(self.opening.begin, abandon_on_cancel=True)

    # -- tools ----------------------------------------------------------------------------------------------------

    def _tool(self, spell: Spell) -> types.Tool:
        hints = spell.annotations()
        schema = spell.input_schema()
        if self.explicit:
            schema = {**schema, "properties": {**schema["properties"], HANDLE_ARGUMENT: EPISODE_PROPERTY}}
        return types.Tool(
            name=spell.name,
            title=hints["title"],
            description=spell.description,
            input_schema=schema,
            output_schema=output_schema(spell.output_schema(), with_episode=self.explicit)
            if self._structured
            else None,
            annotations=types.ToolAnnotations(
                title=hints["title"],
                read_only_hint=hints["readOnlyHint"],
                destructive_hint=hints["destructiveHint"],
                idempotent_hint=hints["idempotentHint"],
                open_world_hint=hints["openWorldHint"],
            ),
        )

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._tools.get(name)
        return tool.input_schema if tool is not None else None

    async def list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._listed.set()
        offered = spellbook(asking=self.opening.asking())
        tools = [self._tools[name] for name in offered]
        if ASK in offered and self.opening.asking_stays_here():
            # Some hosts refuse what reaches beyond this machine unless a person is there to allow it.
            hints = tools[-1].annotations
            assert tools[-1].name == ASK and hints is not None
            here = hints.model_copy(update={"open_world_hint": False})
            tools[-1] = tools[-1].model_copy(update={"annotations": here})
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self._answering += 1
        self.idling.called()
        try:
            return await self._call(ctx, params)
        finally:
            self._answering -= 1
            self.idling.called()

    async def _call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self._listed.set()
        arguments = dict(params.arguments or {})
        handle = arguments.pop(HANDLE_ARGUMENT, None) if self.explicit else None
        meta = (ctx.params or {}).get("_meta") or {}
        origin = Origin.of(
            meta,
            self._environment,
            client=_client_name(ctx),
            session=_session_id(ctx),
            handle=None if handle is None else str(handle),
        )
        plugin = PluginSight.of(arguments.pop(PLUGIN_ARGUMENT, None), origin.call_id)
        spell = self._book.get(params.name)
        looks = params.name in LOOK_AT_DOCUMENTS
        writes_notes = spell is not None and spell.stage == "note" and not spell.reads_only

        approval: Approval | None = None

        def work() -> types.CallToolResult:
            if writes_notes:
                self.watch.expect(self.opening.workspace())
            if looks:
                self.opening.first_look(FIRST_BUILD_SECONDS, FIRST_RESULT_SECONDS)
            found = self._episodes.of_call(origin, params.name)
            done: CastResult = cast(
                found.episode,
                params.name,
                arguments,
                host_call_id=origin.call_id,
                plugin=plugin,
                approval=approval,
            )
            shown = found.episode.handle if self.explicit and not origin.thread else None
            limit = None if "max_bytes" in arguments else self.opening.answer_bytes()
            return answer(
                done, structured=self._structured, episode=shown, begun=found.begun, most_bytes=limit
            )

        try:
            if writes_notes and approving.can_ask(ctx):
                said = await self._asked_a_person(ctx, params, arguments)
                if isinstance(said, types.InputRequiredResult):
                    return said
                approval = said
            result = await self._told_of_progress(ctx, params.name, arguments, work)
        except PensieveError as error:
            return refusal(error)
        except Exception as error:
            log.exception("%s failed outside its cast", params.name)
            return refusal(_unforeseen(params.name, error))
        if not result.is_error:
            await self.watch.cast_done(wrote_notes=writes_notes)
        return result

    async def _asked_a_person(
        self, ctx: Context, params: types.CallToolRequestParams, arguments: Mapping[str, Any]
    ) -> Approval | types.InputRequiredResult | None:
        def question() -> approving.Question | None:
            workspace = self.opening.workspace()
            return approving.question_of(workspace, params.name, arguments, _client_name(ctx))

        raised = await self._worker(params.name, question)
        if raised is None:
            return None
        stateless = ctx.protocol_version >= STATELESS_VERSION
        return await approving.ask(ctx, params, raised, stateless=stateless)

    async def _told_of_progress(
        self, ctx: Context, name: str, arguments: Mapping[str, Any], work: Callable[[], T]
    ) -> T:
        """The work's result; while buildIndex or askStateLM waits its short while, it is told how far it is. The SDK
        drops what the caller did not ask for. A question whose caller gave up is ended.
        """
        if name not in ("buildIndex", ASK):
            return await self._worker(name, work)
        outcome: list[T] = []
        error: PensieveError | None = None
        async with anyio.create_task_group() as group:
            if name == ASK:
                group.start_soon(self._tell_turns, ctx, arguments)
            else:
                group.start_soon(self._tell_progress, ctx)
            try:
                outcome.append(await self._worker(name, work))
            except PensieveError as raised:  # raised through the group it would come out wrapped
                error = raised
            except anyio.get_cancelled_exc_class():
                if name == ASK and (workspace := self.opening.peek()) is not None and workspace.asks:
                    workspace.asks.cancel(*_asked(arguments))
                raise
            group.cancel_scope.cancel()
        if error is not None:
            raise error
        return outcome[0]

    async def _tell_turns(self, ctx: Context, arguments: Mapping[str, Any]) -> None:
        """What the reader does, turn by turn."""
        told = -1
        while True:
            await anyio.sleep(PROGRESS_SECONDS)
            workspace = self.opening.peek()
            job = workspace.asks.peek(*_asked(arguments)) if workspace and workspace.asks else None
            if job is not None and job.turns > told:
                told = job.turns
                await ctx.session.report_progress(told, None, job.told)

    async def _tell_progress(self, ctx: Context) -> None:
        told = -1
        while True:
            await anyio.sleep(PROGRESS_SECONDS)
            if (workspace := self.opening.peek()) is None:
                continue
            try:
                progress = await anyio.to_thread.run_sync(workspace.progress)
            except PensieveError as error:  # the build's own answer tells what is wrong
                log.info("no progress to tell: %s", error)
                return
            if progress.documents_done > told:  # the protocol wants it to grow
                told = progress.documents_done
                words = f"{told:,} of {progress.documents_total:,} documents"
                await ctx.session.report_progress(told, progress.documents_total or None, words)

    # -- resources and prompts ------------------------------------------------------------------------------------

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params else None
        lines, following = await self._answered(ctx, "resources/list", lambda: self._resources.listed(cursor))
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=line.uri, name=line.name, description=line.description, mime_type="text/plain"
                )
                for line in lines
            ],
            next_cursor=following,
        )

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=t.uri_template,
                    name=t.name,
                    description=t.description,
                    mime_type="text/plain",
                )
                for t in self._resources.templates()
            ]
        )

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        text = await self._answered(
            ctx, f"reading {uri[:80]}", lambda: self._resources.read(uri, session=_session_id(ctx)), uri=uri
        )
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)]
        )

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        if not isinstance(params.ref, types.ResourceTemplateReference):
            return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))
        argument = params.argument
        values, total = await self._answered(
            ctx, "completion", lambda: self._resources.complete(argument.name, argument.value)
        )
        return types.CompleteResult(
            completion=types.Completion(values=values, total=total, has_more=total > len(values))
        )

    async def list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=card.name,
                    title=card.title,
                    description=card.description,
                    arguments=[
                        types.PromptArgument(name=a.name, description=a.description, required=a.required)
                        for a in card.arguments
                    ],
                )
                for card in CARDS
            ]
        )

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        card, text = await self._answered(
            ctx,
            f"the prompt {params.name[:80]}",
            lambda: self._prompts.get(params.name, params.arguments, session=_session_id(ctx)),
        )
        return types.GetPromptResult(
            description=card.description,
            messages=[types.PromptMessage(role="user", content=types.TextContent(text=text))],
        )

    # -- helpers --------------------------------------------------------------------------------------------------

    def _worker(self, what: str, function: Callable[[], T]) -> Awaitable[T]:
        workspace = self.opening.peek()
        seconds = workspace.settings.call_seconds if workspace else Settings().call_seconds
        return self.workers.run(what, seconds, function)

    async def _answered(
        self, ctx: Context, what: str, function: Callable[[], T], *, uri: str | None = None
    ) -> T:
        """The function's result; our errors become the protocol's, with the same words."""
        try:
            return await self._worker(what, function)
        except PensieveError as error:
            raise _protocol_error(error, ctx.protocol_version, uri) from error
        except Exception as error:
            log.exception("%s failed", what)
            raise _protocol_error(_unforeseen(what, error), ctx.protocol_version, uri) from error


def _protocol_error(error: PensieveError, version: str, uri: str | None) -> MCPError:
    code = types.INVALID_PARAMS if isinstance(error, Miscast) else types.INTERNAL_ERROR
    if uri is not None and error.slug.startswith("no_such_") and version < STATELESS_VERSION:
        code = RESOURCE_NOT_FOUND
    data = {"slug": error.slug, **({"uri": uri} if uri else {})}
    return MCPError(code=code, message=f"{error.message} {error.hint}".strip(), data=data)


def _unforeseen(what: str, error: Exception) -> PensieveError:
    return PensieveError(
        f"{what} failed inside: {type(error).__name__}: {one_line(str(error), 300)}.",
        hint="This is a fault of ours; the server's log has the details.",
        slug="internal",
    )


def _asked(arguments: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Question and paths of a call, as far as they are there."""
    paths = arguments.get("paths")
    listed = paths if isinstance(paths, list) else [paths] if isinstance(paths, str) else []
    return str(arguments.get("question", "")), [str(path) for path in listed]


def _client_name(ctx: Context) -> str:
    params = ctx.session.client_params
    return params.client_info.name[:80] if params is not None else ""


def _session_id(ctx: Context) -> str:
    """The id of an older client's lasting HTTP session, else nothing."""
    headers = getattr(ctx.request, "headers", None)
    return headers.get(SESSION_HEADER, "") if headers is not None else ""
