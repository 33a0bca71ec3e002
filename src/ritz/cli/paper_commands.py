"""The commands of `ritz` on the figures of the papers, as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import completions
from .commands import app
from .failures import report_errors
from .folders import RESULTS
from .options import Debug, Ids, Results, SomeIds, WorkerKind


@app.command("list")
def list_figures(out: Results = RESULTS, debug: Debug = False) -> None:
    """List the figures of the papers, with their presets and records.

    \b
    Example:
      ritz list
    """
    with report_errors(debug):
        from . import papers

        papers.show_list(out)


@app.command("run")
def run_figures(
    ids: Ids,
    preset: Annotated[
        str,
        typer.Option(
            help="The size of the run: paper, laptop (minutes on two cores) or smoke (seconds).",
            autocompletion=completions.presets,
        ),
    ] = "laptop",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set one field of the config; repeatable.",
            autocompletion=completions.settings,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda or cuda:1.")] = "cpu",
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the data sets.", show_default="that of RITZ_DATA; else downloads are cached"),
    ] = None,
    workers: Annotated[WorkerKind, typer.Option(help="What runs the tasks of a sweep.")] = WorkerKind.IN_PROCESS,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="How many processes, with --workers processes.", show_default="number of cores"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Compute again what is already there.")] = False,
    out: Results = RESULTS,
    debug: Debug = False,
) -> None:
    """Compute figures of the papers, judge their claims and draw them.

    The results are record.json, arrays.npz and figure.png in OUT/ID/PRESET. What is already there is not computed
    again, and an interrupted run resumes where it stopped: give the same command once more.

    \b
    Examples:
      ritz run linear2026.fig1c
      ritz run 'linear2026.*' --preset paper --device cuda
      ritz run singh2026.fig4 --set training.networks=20 --workers processes
    """
    with report_errors(debug):
        from . import papers
        from .target import device_of

        context = papers.context(device_of(device), data_dir, workers.value, processes)
        complete = papers.run(ids, preset, setting or [], out, context, force=force, debug=debug)
    if not complete:
        raise typer.Exit(1)


@app.command("draw")
def draw_figures(
    ids: Ids,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Take only the records of this preset.", show_default="all", autocompletion=completions.presets
        ),
    ] = None,
    out: Results = RESULTS,
    debug: Debug = False,
) -> None:
    """Draw figures again from their records; nothing is computed.

    Their claims are judged again too.

    \b
    Examples:
      ritz draw linear2026.fig1c
      ritz draw '*' --preset paper
    """
    with report_errors(debug):
        from . import papers

        if not papers.draw(ids, preset, out):
            raise typer.Exit(1)


@app.command("claims")
def show_claims(
    ids: SomeIds = None,
    out: Results = RESULTS,
    statements: Annotated[
        bool, typer.Option("--statements", help="Print only what the papers say, without records.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Also print numbers, rules, other readings and reasons.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Print the claims of the papers with their verdicts.

    Each has one line, or with --full all that is known about it.
    With --statements only what the papers say, where they say it, the rule by which it is judged, and known reasons
    why it may fail.

    \b
    Examples:
      ritz claims
      ritz claims 'linear2026.*' --full
      ritz claims linear2026.fig1c --statements
    """
    with report_errors(debug):
        from . import claims

        if statements:
            claims.show_statements(ids or ["*"])
        else:
            claims.show_claims(ids or ["*"], out, full=full)


@app.command("pages")
def make_pages(
    ids: SomeIds = None,
    out: Results = RESULTS,
    to: Annotated[Path, typer.Option(help="Folder for the pages.")] = Path("docs/papers"),
    debug: Debug = False,
) -> None:
    """Write a page for each paper from its figures' records.

    It shows what the paper prints, what ritz finds and why they differ; pictures; claims with verdicts. Text above the
    mark on an existing page is kept.

    \b
    Examples:
      ritz pages
      ritz pages 'linear2026.*'
    """
    with report_errors(debug):
        from . import claims

        claims.make_pages(ids or ["*"], out, to)
