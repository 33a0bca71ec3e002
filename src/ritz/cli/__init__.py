"""The command `ritz`. Imports beyond those of the package itself wait until a command needs them."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import RitzError

if TYPE_CHECKING:
    from ..analysis.spectrum import Settings
    from ..risk.risk import Risk
    from .target import Target

app = typer.Typer(
    name="ritz",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Spectroscopy for neural networks: the spectrum of a model's curvature, every number with its error.

    \b
    Try it:         ritz demo
    Your own model: ritz spectrum train.py:risk
    Its classes:    ritz classes train.py:risk
    The theory:     ritz verify
    The papers:     ritz list, ritz run linear2026.fig1a, ritz claims
    """,
)


class Matrix(StrEnum):
    """The matrices that `ritz spectrum` knows, as they are written on the command line."""

    HESSIAN = "hessian"
    GAUSS_NEWTON = "gauss-newton"
    FUNCTIONAL = "functional"


class Precision(StrEnum):
    """The precisions in which curvature makes sense."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"


class Engine(StrEnum):
    """Where the many small computations of a figure run."""

    IN_PROCESS = "in-process"
    PROCESSES = "processes"
    RAY = "ray"


Factory = Annotated[str, typer.Argument(metavar="FILE.py:FACTORY", help="Or package.module:factory.")]
Layer = Annotated[list[str] | None, typer.Option(help="Only parameters that match this glob; repeatable.")]
Examples = Annotated[int | None, typer.Option(min=1, help="Only the first so many examples.")]
Dtype = Annotated[Precision | None, typer.Option(help="Convert a copy of the model.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Figures, or globs such as 'linear2026.*'.")]
Results = Annotated[Path, typer.Option("--out", help="Folder of the records.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="out/NAME")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all randomness.", show_default="0")]


def main() -> None:
    """The entry point of the command."""
    app(prog_name="ritz")


def _say_version(requested: bool) -> bool:
    if requested:
        typer.echo(f"ritz {version('ritz')}")
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


@app.command()
def demo(out: Out = None, seed: Seed = None, debug: Debug = False) -> None:
    """Train a small classifier of handwritten digits and analyse its Hessian.

    It takes about half a minute on a laptop and needs no download.

    \b
    Example:
      ritz demo --out out/demo
    """
    with _told(debug):
        from . import digits, tables

        folder = out or Path("out/demo")
        record, accuracy = digits.run(folder, seed=seed or 0)
        tables.printed(f"A classifier of digits, test accuracy {accuracy:.1%}\n")
        tables.printed(tables.summary(record))
        _say_files(folder)
        typer.echo("Where such eigenvalues come from, for a model of yours: ritz classes examples/checkpoint.py:risk")


@app.command()
def spectrum(
    target: Factory,
    operator: Annotated[Matrix, typer.Option(help="Which matrix: H, G, or what is left, E = H - G.")] = Matrix.HESSIAN,
    eigenpairs: Annotated[
        int | None,
        typer.Option("--eigenpairs", "-k", min=0, help="How many, largest |λ| first.", show_default="10, or all"),
    ] = None,
    probes: Annotated[int, typer.Option(min=1, help="Random probes of the density: more, less noise.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Lanczos steps per probe: more, finer detail.")] = 64,
    layer: Layer = None,
    per_layer: Annotated[bool, typer.Option("--per-layer", help="Every layer too, each as a diagonal block.")] = False,
    examples: Examples = None,
    log: Annotated[bool, typer.Option("--log", help="Draw the density of log |λ| too.")] = False,
    dtype: Dtype = None,
    device: Device = None,
    seed: Seed = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what time and memory it would take.")] = False,
    save_vectors: Annotated[bool, typer.Option("--save-vectors", help="Keep the eigenvectors in arrays.npz.")] = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Analyse your own model: its spectrum, its largest eigenvalues, what they sum up to.

    FACTORY is a function of yours that returns a ritz.Risk or (model, loss, data). It is called with whichever of
    device, dtype and seed its signature names. Written are record.json, arrays.npz and spectrum.png.

    \b
    Examples:
      ritz spectrum examples/checkpoint.py:risk
      ritz spectrum train.py:risk --operator gauss-newton -k 20 --per-layer --log
      ritz spectrum my.package.models:resnet --layer 'layer4.*' --examples 1000 --dry-run
    """
    with _told(debug):
        from .. import operators
        from ..analysis.spectrum import Settings
        from .target import Wishes, device_of, dtype_of, found

        functions = {
            Matrix.HESSIAN: operators.hessian,
            Matrix.GAUSS_NEWTON: operators.gauss_newton,
            Matrix.FUNCTIONAL: operators.functional_hessian,
        }
        settings = Settings(
            operator=functions[operator],
            num_eigenpairs=eigenpairs,
            num_probes=probes,
            num_steps=steps,
            seed=seed or 0,
            vectors=save_vectors,
            per_layer=per_layer,
            log_spectrum=log,
        )
        place, folder, risk = found(target, out, Wishes(device_of(device), dtype_of(dtype), seed), examples, layer)
        if dry_run:
            _forecast(risk, settings)
        else:
            _analyse(risk, settings, place, folder, examples)


@app.command("classes")
def show_classes(
    target: Factory,
    lines: Annotated[
        int | None, typer.Option(min=1, help="Eigenvalues of H and of G.", show_default="number of classes and two")
    ] = None,
    exact_rows: Annotated[int, typer.Option(min=0, help="The largest matrix that is decomposed.")] = 3000,
    decay: Annotated[
        float | None, typer.Option(help="The training's weight decay, for the weights.", show_default="left out")
    ] = None,
    layer: Layer = None,
    examples: Examples = None,
    dtype: Dtype = None,
    device: Device = None,
    seed: Seed = None,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Say where the largest eigenvalues of a classifier come from: its classes, cross-classes, or the rest.

    FACTORY is as for ritz spectrum. Written are record.json, arrays.npz, and pictures: the spectrum of G after each
    part was knocked out, and the class structure of features, errors and weights, KFAC and CFAC, layer by layer.
    Beyond --exact-rows, spectra are Lanczos quadratures, and wide layers are left out.

    \b
    Examples:
      ritz classes examples/checkpoint.py:risk
      ritz classes examples/checkpoint.py:risk --examples 300 --dtype float64
      ritz classes train.py:risk --decay 5e-4 --exact-rows 10000 --device cuda
    """
    with _told(debug):
        from ..analysis.classes import Settings
        from . import classes
        from .target import Wishes, device_of, dtype_of, found

        settings = Settings(num_lines=lines, exact_rows=exact_rows, decay=decay, seed=seed or 0)
        settings.check()
        wishes = Wishes(device_of(device), dtype_of(dtype), seed)
        place, folder, risk = found(target, out, wishes, examples, layer, suffix="-classes")
        source = {"factory": place.told, "examples": examples}
        _say_files(folder, classes.run(risk, settings, folder, name=place.name, source=source))


@app.command()
def verify(
    draws: Annotated[int | None, typer.Option(min=1, help="Random inputs per result.", show_default="40")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs.", show_default="a new one each time")] = None,
    debug: Debug = False,
) -> None:
    """Check every closed form of the papers against the dense Hessian by automatic differentiation, in float64.

    On fresh random inputs and on the degenerate cases. Errors are relative to the largest eigenvalue; exit code 1 if
    any is above 1e-10 (eigenvalues) or 1e-9 (eigenvectors). It takes less than a minute.

    \b
    Examples:
      ritz verify
      ritz verify --draws 200 --seed 7
    """
    with _told(debug):
        from . import verification

        holds = verification.run(draws, seed)
    if not holds:
        raise typer.Exit(1)


@app.command("list")
def list_figures(out: Results = Path("results"), debug: Debug = False) -> None:
    """List the figures of the papers, with their presets and the records that are there.

    \b
    Example:
      ritz list
    """
    with _told(debug):
        from . import papers as experiments

        experiments.show_list(out)


@app.command("run")
def run_figures(
    ids: Ids,
    preset: Annotated[str, typer.Option(help="paper, laptop (minutes on two cores) or smoke (seconds).")] = "laptop",
    setting: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Repeatable.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data sets.", show_default="RITZ_DATA, or as ritz.lab.data says")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Where sweeps run.")] = Engine.IN_PROCESS,
    workers: Annotated[int | None, typer.Option(min=1, help="For --engine processes.", show_default="cores")] = None,
    force: Annotated[bool, typer.Option("--force", help="Compute what is there again.")] = False,
    out: Results = Path("results"),
    debug: Debug = False,
) -> None:
    """Compute figures of the papers, judge their claims, draw them.

    Written are record.json, arrays.npz and figure.png in OUT/ID/PRESET. What is there is not computed again, and an
    interrupted run goes on where it was: run the same command once more.

    \b
    Examples:
      ritz run linear2026.fig1c
      ritz run 'linear2026.*' --preset paper --device cuda
      ritz run singh2026.fig4 --set training.networks=20 --engine processes
    """
    with _told(debug):
        from . import papers as experiments
        from .target import device_of

        place = device_of(device)
        kept = experiments.Wishes(place, data_dir, engine.value, workers, force=force, debug=debug)
        complete = experiments.run(ids, preset, setting or [], out, kept)
    if not complete:
        raise typer.Exit(1)


@app.command("draw")
def draw_figures(
    ids: Ids,
    preset: Annotated[str | None, typer.Option(help="Only the records of this preset.", show_default="all")] = None,
    out: Results = Path("results"),
    debug: Debug = False,
) -> None:
    """Draw figures again from their records, and judge their claims again. Nothing is computed.

    \b
    Examples:
      ritz draw linear2026.fig1c
      ritz draw '*' --preset paper
    """
    with _told(debug):
        from . import papers as experiments

        if not experiments.draw(ids, preset, out):
            raise typer.Exit(1)


@app.command("claims")
def show_claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Only these figures, or globs.")] = None,
    out: Results = Path("results"),
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table for a document.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="Such a table with a row for each figure.")] = False,
    debug: Debug = False,
) -> None:
    """Print what the papers say and what was measured: the claims of all records, with their verdicts.

    \b
    Examples:
      ritz claims
      ritz claims 'linear2026.*'
      ritz claims --brief
    """
    with _told(debug):
        from . import papers as experiments

        if markdown or brief:
            experiments.markdown(ids or ["*"], out, brief=brief)
        else:
            experiments.show_claims(ids or ["*"], out)


def _forecast(risk: Risk, settings: Settings) -> None:
    from ..analysis import spectrum as analysis
    from . import tables

    tables.printed(tables.cost(analysis.forecast(risk, settings)))


def _analyse(risk: Risk, settings: Settings, place: Target, folder: Path, examples: int | None) -> None:
    from ..analysis import spectrum as analysis
    from . import tables

    record = analysis.run(risk, settings, name=place.name, source={"factory": place.told, "examples": examples})
    analysis.write(record, folder)
    tables.printed(tables.summary(record))
    _say_files(folder)


def _say_files(folder: Path, files: Sequence[str] = ("record.json", "arrays.npz", "spectrum.png")) -> None:
    typer.echo(f"Written to {folder}: {', '.join(files)}")


@contextmanager
def _told(debug: bool) -> Iterator[None]:
    """End with a message instead of a traceback: exit code 2 for what the user can mend, 1 for what they cannot."""
    with warnings.catch_warnings():
        warnings.showwarning = _say_warning
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA context")
        try:
            yield
        except RitzError as error:
            typer.secho(traceback.format_exc() if debug else str(error), err=True)
            raise typer.Exit(2) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if debug:
                raise
            typer.secho(str(_unexpected(error)), err=True)
            raise typer.Exit(1) from None


def _unexpected(error: Exception) -> RitzError:
    return RitzError(
        f"Unexpected {type(error).__name__}: {error}",
        "ritz did not foresee this: it may be a fault of its own.",
        "Run the same command with --debug to see where it comes from.",
    )


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.secho(f"Note: {message}", err=True)
