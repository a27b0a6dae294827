"""eval: the suites that say how well a model answers from what is longer than its window."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from pensieve_mcp.cli.output import put, put_json, say
from pensieve_mcp.cli.shell import NearGroup, Shell, command_options, json_option
from pensieve_mcp.errors import WorkspaceError

SUITES = ("needle", "chat", "qa", "interference", "deep")
SYSTEMS = ("loop", "direct", "question", "memagent", "readagent")


@click.group(cls=NearGroup, name="eval", short_help="Ask questions over long text and score the answers.")
def evaluation() -> None:
    """Ask made questions over long real text and score the answers: the loop, and what it is compared with."""


def _lengths(text: str) -> tuple[int, ...]:
    """`32k,1m,500`: k and m are binary, as in the paper's lengths. Raises UsageError."""
    found = []
    for part in filter(None, (one.strip().lower() for one in text.split(","))):
        match = re.fullmatch(r"(\d{1,8})([km]?)", part)
        if match is None or not int(match[1]):
            raise click.UsageError(f"{part!r} is no length; for example 32k, 2m or 5000.")
        found.append(int(match[1]) * {"": 1, "k": 1_024, "m": 1_048_576}[match[2]])
    return tuple(found)


@evaluation.command(short_help="Run suites; run again to go on.")
@click.argument("suites", nargs=-1, required=True, type=click.Choice(SUITES), metavar="SUITE...")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("eval"), show_default=True
)
@click.option(
    "--lengths", default="", help="Lengths, parted by commas: 32k,128k,1m; for interference updates of a key."
)
@click.option(
    "--n", "count", type=click.IntRange(1), default=20, show_default=True, help="Questions a length."
)
@click.option("--seed", type=int, default=31, show_default=True)
@click.option("--systems", default="loop", show_default=True, help=f"Parted by commas: {', '.join(SYSTEMS)}.")
@click.option(
    "--backend", type=click.Choice(["auto", "openai", "anthropic", "local", "extractive", "scripted"])
)
@click.option("--model", metavar="NAME", default="", help="Model of the endpoint, or a GGUF file.")
@click.option("--url", metavar="URL", default="")
@click.option("--dialect", type=click.Choice(["ours", "published", "compact"]))
@click.option(
    "--no-search", is_flag=True, help="Read in order instead of searching, as in the paper's needle test."
)
@click.option(
    "--window", type=click.IntRange(512), default=32_000, show_default=True, help="Tokens of the window."
)
@click.option("--label", default="", help="What to call the model in the report.")
@click.option("--text", "text_folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Text files to hide the evidence in; default: Python's own documentation and library.")  # fmt: skip
@click.option("--keep-beds", is_flag=True, help="Keep documents and indexes.")
@click.option("--quiet", is_flag=True)
@json_option
@command_options
def run(
    shell: Shell,
    suites: tuple[str, ...],
    out: Path,
    lengths: str,
    count: int,
    seed: int,
    systems: str,
    backend: str | None,
    model: str,
    url: str,
    dialect: str | None,
    no_search: bool,
    window: int,
    label: str,
    text_folder: Path | None,
    keep_beds: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run SUITEs: needle (one number in a long text), chat (what a user said, and said anew), qa (facts, two hops,
    lists, what is not there), interference (the last of many values), deep (three documents one after another).

    Each answer is a line of OUT/records.jsonl at once; what stands there is not asked again. OUT/report.md and
    OUT/SUITE.svg hold all that was ever run into OUT, other models and systems, too.
    """
    from pensieve_mcp.settings import FILE_NAME, data_folder, resolve
    from pensieve_mcp.statelm import asking
    from pensieve_mcp.statelm.evaluation import running, texts

    if lengths and "interference" in suites and len(suites) > 1:
        raise click.UsageError("Lengths of interference are updates, not tokens: run it by itself.")
    plan = running.Plan(
        suites=suites,
        lengths=_lengths(lengths),
        n=count,
        seed=seed,
        systems=tuple(filter(None, (one.strip() for one in systems.split(",")))),
        dialect=dialect or "",
        search=not no_search,
        window_tokens=window,
        label=label,
        keep_beds=keep_beds,
    )
    home = data_folder(shell.environment)
    resolved = resolve(files=(home / FILE_NAME,), environment=shell.environment, arguments=shell.settings)
    choice = asking.choice_from(
        shell.environment, resolved.settings, backend=backend or "", model=model, url=url
    )
    source = texts.paragraphs_of_folder(text_folder) if text_folder else texts.paragraphs_of_python()
    records = running.run(
        plan,
        choice,
        out,
        home=home,
        text=source,
        tell=(lambda line: None) if quiet else say,
    )
    _report(out, records, as_json)


@evaluation.command(short_help="Write the report of what was run.")
@click.argument("out", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@command_options
def report(shell: Shell, out: Path, as_json: bool) -> None:
    """Write OUT/report.md and the pictures anew from OUT/records.jsonl, and print the page."""
    from pensieve_mcp.statelm.evaluation import running

    _report(out, running.load(out / running.RECORDS), as_json)


def _report(out: Path, records: Sequence[dict[str, object]], as_json: bool) -> None:
    from pensieve_mcp.statelm.evaluation import report as reporting
    from pensieve_mcp.statelm.evaluation import running

    page = reporting.markdown(records)
    try:
        (out / "report.md").write_text(page, encoding="utf-8")
        for suite in dict.fromkeys(str(one["suite"]) for one in running.answers(records)):
            (out / f"{suite}.svg").write_text(reporting.svg(records, suite), encoding="utf-8")
    except OSError as error:
        raise WorkspaceError(f"The report cannot be written: {error}.", hint="Name another --out.") from error
    if as_json:
        put_json(reporting.summary(records))
    else:
        put(page)
