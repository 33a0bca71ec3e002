"""The commands of `ritz` on models and theory as they are typed: their names, their options, their help.

Help, versions and wrong options are answered from here alone: what computes is imported when a command runs.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

import ritz

from .failures import report_errors
from .messages import say
from .options import (
    Debug,
    Device,
    DryRun,
    Dtype,
    Examples,
    Factory,
    Layer,
    MatrixName,
    Out,
    Records,
    Seed,
)

app = typer.Typer(
    name="ritz",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Spectroscopy for neural networks: the spectrum of a model's curvature, every number with its error.

    \b
    Try it:         ritz demo
    Your own model: ritz new mine.py, then ritz spectrum mine.py:risk
    Its classes:    ritz classes mine.py:risk
    As a page:      ritz report out/demo, ritz compare out/before out/after
    The theory:     ritz verify
    The papers:     ritz list, ritz run linear2026.fig1a, ritz claims
    """,
)


def _say_version(requested: bool) -> bool:
    if requested:
        typer.echo(f"ritz {ritz.__version__}")  # also where it is run from its source
        raise typer.Exit
    return requested


@app.callback()
def _ritz(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command("demo")
def run_demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/demo"),
    seed: Seed = None,
    debug: Debug = False,
) -> None:
    """Train a classifier of handwritten digits, analyse its Hessian.

    It takes about half a minute on a laptop and needs no download.

    \b
    Example:
      ritz demo --out out/demo
    """
    with report_errors(debug):
        from . import demo, spectrum, tables

        record, accuracy = demo.run(out, seed=seed or 0)
        tables.show(f"A classifier of digits, test accuracy {accuracy:.1%}\n")
        spectrum.show_record(record, out, out)
        say("Your own model: ritz new mine.py, then ritz spectrum mine.py:risk, or ritz classes mine.py:risk")


@app.command("new")
def write_starter(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="The file to write.")],
    debug: Debug = False,
) -> None:
    """Write a file to put your own model into; it runs as it is.

    It holds a function `risk` with three places to fill in: your data, your model and your loss.

    \b
    Example:
      ritz new mine.py
      ritz spectrum mine.py:risk
    """
    with report_errors(debug):
        from .new import write

        write(file)
        say(f"Written: {file}. It runs as it is: ritz spectrum {quote(str(file))}:risk")


@app.command("spectrum")
def analyse_spectrum(
    target: Factory,
    operator: Annotated[
        MatrixName,
        typer.Option(help="Which matrix to analyse: the Hessian H, the Gauss-Newton matrix G, or E = H - G."),
    ] = MatrixName.HESSIAN,
    eigenpairs: Annotated[
        int | None,
        typer.Option(
            "--eigenpairs",
            "-k",
            min=0,
            help="How many to compute, largest |λ| first.",
            show_default="10, or all if fewer",
        ),
    ] = None,
    probes: Annotated[int, typer.Option(min=1, help="Random probes for the density: more probes give less noise.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Lanczos steps per probe: more steps show finer detail.")] = 64,
    exact_rows: Annotated[
        int,
        typer.Option(
            min=0, help="Decompose matrices of up to this many rows exactly, where that takes no more products."
        ),
    ] = 4096,
    layer: Layer = None,
    per_layer: Annotated[
        bool, typer.Option("--per-layer", help="Also analyse every layer by itself, as a diagonal block.")
    ] = False,
    examples: Examples = None,
    log: Annotated[bool, typer.Option("--log", help="Also draw the density of log |λ|.")] = False,
    dtype: Dtype = None,
    device: Device = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    save_vectors: Annotated[bool, typer.Option("--save-vectors", help="Keep the eigenvectors in arrays.npz.")] = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Analyse your own model: its spectrum and largest eigenvalues.

    FACTORY is your function that returns a ritz.Risk or a tuple (model, loss, data); `ritz new mine.py` writes one
    to begin with. It is called with whichever of device, dtype and seed its signature names.
    The results go to out/FILE-FACTORY: record.json, arrays.npz, spectrum.png, and report.html, the page to look at.
    The folder's name also has --layer, --examples, --dtype and --seed; results for G and E go to folders inside it.

    \b
    Examples:
      ritz spectrum mine.py:risk
      ritz spectrum mine.py:risk --operator gauss-newton -k 20 --per-layer --log
      ritz spectrum my.package.models:resnet --layer 'layer4.*' --examples 1000 --dry-run
    """
    with report_errors(debug):
        from ..analysis.spectrum.settings import MATRICES, Settings
        from . import spectrum
        from .target import Request, subject

        settings = Settings(
            operator=MATRICES[operator],
            num_eigenpairs=eigenpairs,
            num_probes=probes,
            num_steps=steps,
            seed=seed or 0,
            vectors=save_vectors,
            per_layer=per_layer,
            log_spectrum=log,
            exact_rows=exact_rows,
        )
        inside = "" if operator is MatrixName.HESSIAN else operator.value
        request = Request.of(device, dtype, seed)
        kind = settings.operator_name
        model = subject(target, out, request, examples=examples, layers=layer, kind=kind, inside=inside)
        if dry_run:
            spectrum.forecast(model.risk, settings)
        else:
            spectrum.run(model, settings)


@app.command("classes")
def analyse_classes(
    target: Factory,
    lines: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many eigenvalues of H and of G to attribute.", show_default="number of classes plus two"
        ),
    ] = None,
    exact_rows: Annotated[int, typer.Option(min=0, help="Decompose matrices of up to this many rows exactly.")] = 3000,
    weight_decay: Annotated[
        float | None,
        typer.Option(
            help="The weight decay of the training, which the class structure of weights needs.",
            show_default="left out",
        ),
    ] = None,
    layer: Layer = None,
    examples: Examples = None,
    dtype: Dtype = None,
    device: Device = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Show which classes the largest eigenvalues come from.

    Each is split among the classifier's classes, its cross-classes, and the rest. FACTORY is as for ritz spectrum.
    The results are record.json, arrays.npz, report.html, and pictures: the spectrum of G after each part was knocked
    out, and the class structure of features, errors and weights, KFAC and CFAC, by layer. Beyond --exact-rows, spectra
    are Lanczos quadratures, and wide layers are left out.

    \b
    Examples:
      ritz classes mine.py:risk
      ritz classes mine.py:risk --examples 300 --dtype float64
      ritz classes mine.py:risk --weight-decay 5e-4 --exact-rows 10000 --device cuda
    """
    with report_errors(debug):
        from ..analysis.classes import ClassSettings
        from . import classes
        from .target import Request, subject

        settings = ClassSettings(num_lines=lines, exact_rows=exact_rows, weight_decay=weight_decay, seed=seed or 0)
        settings.check()
        request = Request.of(device, dtype, seed)
        model = subject(target, out, request, examples=examples, layers=layer, kind="classes", suffix="classes")
        if dry_run:
            classes.forecast(model.risk, settings)
        else:
            classes.run(model, settings)


@app.command("report")
def write_report(
    records: Records,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    debug: Debug = False,
) -> None:
    """Write a page of what was measured, as one HTML file.

    It explains itself and needs no network. Measurements of one model are shown together: the spectra of H, G and E,
    and where their lines come from. A folder means all records in it.

    \b
    Examples:
      ritz report out/demo
      ritz report out/mine-risk out/mine-risk-classes -o mine.html
    """
    with report_errors(debug):
        from . import reports

        say(f"Written: {reports.run(records, out)}")


@app.command("compare")
def compare_spectra(
    spectra: Annotated[
        list[str],
        typer.Argument(metavar="SPECTRUM", help="Two or more: folders of records, FOLDER:LAYER, or .npz files."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("compare.html"),
    debug: Debug = False,
) -> None:
    """Compare spectra with the first one: what changed beyond noise.

    Compare two checkpoints, two layers, training and test data, or ritz and another tool: an .npz file with `nodes` and
    `weights`, one row for each probe, and the `size` of the matrix.

    \b
    Examples:
      ritz compare out/before out/after
      ritz compare out/mine-risk:first out/mine-risk:last
      ritz compare out/mine-risk theirs.npz -o both.html
    """
    with report_errors(debug):
        from . import comparisons

        say(f"Written: {comparisons.run(spectra, out)}")


@app.command("verify")
def verify_theory(
    draws: Annotated[
        int | None, typer.Option(min=1, help="How many random inputs to draw for each result.", show_default="40")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the inputs.", show_default="a new one each time")
    ] = None,
    debug: Debug = False,
) -> None:
    """Check every closed form of the papers against dense Hessians.

    The Hessians come from automatic differentiation in float64, on fresh random inputs and on degenerate cases. Errors
    are relative to the largest eigenvalue; the exit code is 1 if any is above 1e-10 (eigenvalues) or 1e-9
    (eigenvectors). It takes less than a minute.

    \b
    Examples:
      ritz verify
      ritz verify --draws 200 --seed 7
    """
    with report_errors(debug):
        from . import verification

        holds = verification.run(draws, seed)
    if not holds:
        raise typer.Exit(1)
