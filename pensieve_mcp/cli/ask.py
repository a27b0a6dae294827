"""ask, plot: a question answered by a model that reads, notes and deletes, and the curve of what stood in
its window."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pensieve_mcp.cli.curve import Point, draw, points_of, svg
from pensieve_mcp.cli.indexing import build
from pensieve_mcp.cli.output import bold, dim, put, put_json, say, width, writing
from pensieve_mcp.cli.shell import NewFile, Shell, command_options, json_option, leave
from pensieve_mcp.cli.translating import for_person
from pensieve_mcp.errors import WorkspaceError

if TYPE_CHECKING:
    from pensieve_mcp.statelm.turns import Asked, Turn

DEFAULT_WINDOW_TOKENS = 32_000


class Png(NewFile):
    """A file to write whose name ends in .png."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).lower().endswith(".png"):
            self.fail(f"{value!r} does not end in .png.", param, ctx)
        return super().convert(value, param, ctx)


@click.command(short_help="Answer a question from documents of any length.")
@click.argument("question")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--backend",
    type=click.Choice(["auto", "openai", "anthropic", "local", "extractive", "scripted"]),
    help="Who chooses the calls; default: PENSIEVE_ASK_BACKEND, else the bundled model where it is installed, else "
    "extractive (no model).",
)
@click.option("--model", metavar="NAME", default="", help="Model of the endpoint, a GGUF file, or a script.")
@click.option(
    "--url", metavar="URL", default="", help="Address of an OpenAI-compatible endpoint, or of Anthropic's."
)
@click.option(
    "--dialect", type=click.Choice(["ours", "published", "compact"]), help="Wording the model was made for."
)
@click.option("--temperature", type=click.FloatRange(0, 2), help="Of sampling; default: the server's.")
@click.option("--under", metavar="PATH", multiple=True, help="Search only below this path.")
@click.option(
    "--no-search", is_flag=True, help="Read in order instead of searching, as in the paper's needle test."
)
@click.option("--save", "save_to", metavar="FILE", type=NewFile(), help="Keep the trajectory in FILE.")
@click.option(
    "--svg",
    "picture",
    metavar="FILE",
    type=NewFile(),
    help="Draw the curve into FILE: an SVG, or a PNG where its name ends so (needs rsvg-convert or the extra "
    "[plot]).",
)
@click.option("--quiet", is_flag=True, help="Do not tell what is being done.")
@json_option
@command_options
def ask(
    shell: Shell,
    question: str,
    paths: tuple[str, ...],
    backend: str | None,
    model: str,
    url: str,
    dialect: str | None,
    temperature: float | None,
    under: tuple[str, ...],
    no_search: bool,
    save_to: str | None,
    picture: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Answer QUESTION from the documents under PATH: search, read, note, delete, until the notes answer it.

    Keys are read from PENSIEVE_ASK_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY. Ends with 1 where no answer was found.
    """
    from pensieve_mcp.settings import data_folder
    from pensieve_mcp.spellbook.entrusting import question_in
    from pensieve_mcp.statelm import asking, trajectories
    from pensieve_mcp.statelm.conversation import Conversation

    question = question_in(question)
    with shell.open(*paths, making=True) as workspace:
        choice = asking.choice_from(
            shell.environment,
            workspace.settings,
            backend=backend or "",
            model=model,
            url=url,
            temperature=temperature,
        )
        build(workspace)
        with writing(silent=quiet) as line:

            def watch(turn: Turn) -> None:
                line.clear()
                if not quiet:
                    _tell(turn)

            asked = asking.ask(
                workspace,
                question,
                choice,
                home=data_folder(shell.environment),
                dialect_name=dialect or "",
                under=under,
                search=not no_search,
                watch=watch,
                hear=line.hear,
            )
        conversation = Conversation.resume(workspace, asked.episode)
        events = workspace.ledger.events(conversation.episode_id)
        try:
            if save_to:
                ours, published = trajectories.save(conversation, asked, Path(save_to))
                say(f"Trajectory in {ours} and {published}.")
            if picture:
                _draw_into(
                    picture,
                    points_of(events, conversation.in_mind()),
                    workspace.settings.window_tokens,
                    question,
                )
        except OSError as error:
            raise WorkspaceError(
                f"The file cannot be written: {error}.", hint="Name another place."
            ) from error
        if as_json:
            put_json(asking.as_data(asked) | {"detail": for_person(asked.detail)})
        else:
            _report(asked)
    if not asked.found:
        leave(1)


def _tell(turn: Turn) -> None:
    """One line a turn, to stderr."""
    first = turn.text.split("\n", 1)
    shown = first[0] if turn.is_error or len(first) == 1 else f"{first[0]} | {first[1]}"
    call = ", ".join(f"{name}={value!r}" for name, value in turn.arguments.items())
    room = max(40, width(169) - 9)  # after the indent
    say(
        dim(f"{turn.visible_tokens:>7,} ")
        + f"{turn.tool or 'no call'}({textwrap.shorten(call, 90, placeholder='…')})"
    )
    if turn.thought:
        say(dim("        " + textwrap.shorten(turn.thought, room, placeholder=" …")))
    say(dim("        " + textwrap.shorten(" ".join(shown.split()), room, placeholder=" …")))


def _report(asked: Asked) -> None:
    from pensieve_mcp.statelm.trajectories import told

    if asked.found:
        put(bold(asked.answer))
    else:
        put("not found" if asked.ended == "not_found" else f"no answer ({asked.ended})")
    if asked.detail:
        say(for_person(asked.detail))
    for cited in asked.citations:
        where = " ".join(
            part
            for part in (f"c{cited.chunk_id}" if cited.chunk_id else "", cited.path, cited.locator)
            if part
        )
        put(f"  {where}: {cited.state}")
        put(dim("    “" + textwrap.shorten(cited.quote, max(60, width() - 6), placeholder=" …") + "”"))
    if asked.found and not asked.grounded:
        put("grounded: false — no note with a quote found in the documents holds this answer.")
    if asked.policy == "extractive":
        what = (
            "this is a sentence as it stands in the documents"
            if asked.found
            else "no sentence was near enough"
        )
        put(f"policy: extractive — no model took part; {what}.")
    say(told(asked.metrics) + f". Episode {asked.episode}.")


@click.command(short_help="Draw the curve of a saved conversation.")
@click.argument("file", type=click.Path(dir_okay=False, exists=True), required=False)
@click.option("--episode", metavar="EPISODE", help="A conversation of the workspace instead of a file.")
@click.option("--svg", "picture", metavar="FILE", type=NewFile(), help="Draw into FILE, an SVG.")
@click.option(
    "--png",
    "raster",
    metavar="FILE.png",
    type=Png(),
    help="Draw into FILE.png; needs the program rsvg-convert (librsvg) or the extra [plot].",
)
@click.option("--replay", is_flag=True, help="Print what happened, step by step.")
@click.option("--window", type=click.IntRange(min=1), default=None, help="Tokens of the window to draw.")
@json_option
@command_options
def plot(
    shell: Shell,
    file: str | None,
    episode: str | None,
    picture: str | None,
    raster: str | None,
    replay: bool,
    window: int | None,
    as_json: bool,
) -> None:
    """Draw what stood in the window at each step of a conversation: deletions are drops.

    FILE is a trajectory of `pensieve ask --save` or an export of `pensieve episodes export`.
    """
    from pensieve_mcp.statelm import trajectories

    if (file is None) == (episode is None):
        raise click.UsageError("Give a FILE or --episode.")
    if file is not None:
        recorded = trajectories.load(Path(file))
    else:
        with shell.open() as workspace:
            record = workspace.ledger.episode(str(episode))
            lines = list(workspace.ledger.export_episode(record.episode_id))
        recorded = trajectories.parse(lines)
    points = points_of(recorded.events, recorded.in_mind)
    shown_window = window or DEFAULT_WINDOW_TOKENS
    metrics = trajectories.metrics_of(recorded.events, recorded.in_mind)
    try:
        for wanted in filter(None, (picture, raster)):
            _draw_into(wanted, points, shown_window, recorded.title)
    except OSError as error:
        raise WorkspaceError(f"The file cannot be written: {error}.", hint="Name another place.") from error
    if as_json:
        import dataclasses

        curve = [[p.visible, p.undeleted, p.kind] for p in points]
        put_json({"title": recorded.title, "curve": curve, "metrics": dataclasses.asdict(metrics)})
        return
    if replay:
        for line in trajectories.replay(recorded):
            put(line)
    for line in draw(points, window=window, columns=width()):
        put(line)
    put(trajectories.told(metrics))


def _picture(points: Sequence[Point], window: int, title: str) -> str:
    all_ = points[-1].undeleted if points else 0
    peak = max((p.visible for p in points), default=0)
    return svg(
        points,
        window=window if peak * 4 > window else None,
        title=textwrap.shorten(title, 90, placeholder=" …"),
        source=f"{peak:,} tokens at the peak; {all_:,} at the end without deleting.",
    )


def _draw_into(picture: str, points: Sequence[Point], window: int, title: str) -> None:
    """An SVG, or a PNG where the name ends so. Raises OSError, WorkspaceError."""
    drawn = _picture(points, window, title)
    place = Path(picture)
    if place.suffix.lower() == ".png":
        from pensieve_mcp.cli.raster import png

        png(drawn, place)
    else:
        place.write_text(drawn, encoding="utf-8")
    say(f"The curve is in {picture}.")
