"""The article on the spectra of one model: H, G and E, their eigenvalues and layers, and how sure all of it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any

from ..analysis import spectrum as analysis
from ..analysis.spectrum.settings import EXACT_ROWS, MATRICES
from ..progress import duration
from ..record import Record
from ..spectrum import Estimate, Spectrum
from ..spectrum.estimate import digits_within, end_in_brief, value_in_brief, value_with_error
from . import guides
from .articles import Number, Section, Table
from .spectral_charts import Lines, density, log_density

LAYERS = 24  # whose curves a chart holds: those of the largest eigenvalues
LAYER_POINTS = 512  # of each of these: with twice as many they are nine tenths of a page
NEAR_ZERO = 0.01  # of the largest |λ|
APART = 1.5  # times the next, from which on an eigenvalue stands apart
LARGEST = 1000.0  # factor that is spelled out
SURE = 0.02  # the error of a share with which it is said
HINTS = {
    "trace": "sum of all eigenvalues",
    "effective_rank": "how many equal ones would make it",
    "negative_mass": "share of eigenvalues below zero",
}
UPWARDS = "curvature where the loss bends upwards most"
SEEN = (
    "The eigenvalues that were computed, those of largest magnitude, are negative. The largest of all is at least that "
    "of the nodes of the quadrature, which lie within the spectrum. More eigenpairs (-k) find it."
)
FLAT = "second derivatives vanish, as those of a piecewise linear loss such as L1 do in its outputs"
BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
TYPED = {matrix.__name__: name for name, matrix in MATRICES.items()}  # as an option; in the order of a page


def finding(record: Record) -> str:
    """The finding in one sentence that the numbers support, without its full stop."""
    scalars = record.scalars
    low, high = scalars["range"]
    size, known = scalars["num_parameters"], gap(record)
    if low == high == 0:
        return f"All {size:,} eigenvalues of the {matrix_of(record)} are zero: {FLAT}"
    reach, inside = _near_zero(record)
    near = f"{_share(inside.value)} within {reach:.2g} of zero" if inside.standard_error < SURE else ""
    start = f"The {matrix_of(record)} has {size:,} eigenvalue{'s' * (size > 1)} from {low:.3g} to {high:.3g}"
    return "; ".join(part for part in (start, known, near) if part)


def matrix_of(record: Record) -> str:
    """The name of the matrix within a sentence."""
    title = analysis.title_of(record)
    return f"{title} matrix" if title.endswith(("Newton", "Fisher")) else title


def _share(value: float) -> str:
    """A share in words that rounding does not make false."""
    percent = f"{value:.0%}"
    words = {"100%": "all are" if value == 1 else "nearly all are", "0%": "hardly any are"}
    return words.get(percent, f"{percent} of all are")


def gap(record: Record) -> str:
    """Whether the largest eigenvalues stand apart; nothing where none was computed."""
    count, factor = analysis.widest_gap(record)
    if not count:
        return ""
    times = f"{factor:.3g}" if factor < LARGEST else f"more than {LARGEST:,.0f}"
    values = analysis.array_of(record, "eigenvalues")
    by = " in magnitude" if bool((values < 0).any()) else ""
    if factor >= APART:
        largest = f"the largest{by} stands" if count == 1 else f"the {count} largest{by} stand"
        return f"{largest} apart: the next is {times} times smaller"
    if len(values) == 1:
        return f"the largest{by} does not stand apart: it is {times} times the next"
    return f"the {len(values)} largest{by} fall without a gap: each is at most {times} times the next"


def _near_zero(record: Record) -> tuple[float, Estimate]:
    """How near is near, and the share of all eigenvalues that are."""
    low, high = record.scalars["range"]
    reach = max(abs(low), abs(high)) * NEAR_ZERO
    return reach, analysis.spectrum_of(record).mass(-reach, reach)


def proof(record: Record) -> str:
    """The evidence for the numbers in the finding."""
    if _is_exact(record):
        apart = f"Those stand apart that lie above the widest gap of |λ|, if that is a factor of {APART:g} or more."
        return f"{_all_known(record)} {apart}"
    _, inside = _near_zero(record)
    words = (
        "The least and the largest λ are eigenvalues with a residual each, or nodes of the quadrature, which lie "
        "within the spectrum. Those stand apart that lie above the widest gap of |λ|, if that gap is a "
        f"factor of {APART:g} or more. After all that were computed comes the largest that the probes saw."
    )
    error = f"{inside.standard_error:.1%}" if inside.standard_error >= 5e-4 else "less than 0.1%"
    share = f" The share near zero has a standard error of {error}."
    return words + (share if inside.standard_error < SURE else "")


def _is_exact(record: Record) -> bool:
    return record.scalars["resolution"] is None


def _all_known(record: Record) -> str:
    """How all eigenvalues were computed, and how far they may be off."""
    count = record.scalars["num_parameters"]
    made = f"All {count:,} eigenvalues were computed, from a product with each column of the matrix in"
    return f"{made} {record.config['dtype']}: they are exact but for the rounding of these products."


def numbers(record: Record) -> list[Number]:
    """The headline numbers, each with the evidence behind it."""
    probes = f"{record.config['num_probes']} random probes of {record.config['num_steps']} steps"
    proof = f"The standard error is that of {probes}, with the rounding of products in {record.config['dtype']}."
    if _is_exact(record):
        proof = (
            f"{_all_known(record)} ± is what that rounding may change; a number without ± is right in all its digits."
        )
    estimates = {key: _estimate(record.scalars, key, _headline) for key in HINTS}
    rest = [Number(key.replace("_", " "), text, proof, hint=HINTS[key]) for key, text in estimates.items()]
    return [*_largest(record), *rest]


def _headline(value: float, error: float | None) -> str:
    """A number with its error, unless that is zero: a count of eigenvalues may be exact."""
    return f"{value:.6g}" if error == 0 else value_with_error(value, error)


def _largest(record: Record) -> list[Number]:
    """λ_max and, of a Hessian, the step size that belongs to it."""
    if not len(analysis.array_of(record, "eigenvalues")):
        return []
    value, residual = analysis.largest_of(record)
    if residual is None:
        return [Number("λ_max", f"about {value:.3g}", SEEN, hint=UPWARDS)]
    near = f"the matrix, as products in {record.config['dtype']} give it, has an eigenvalue that near"
    proof = f"Its residual, from a product of its own, is {residual:.1g}: {near}."
    largest = Number("λ_max", bounded(value, residual), proof, hint=UPWARDS)
    if value <= 0 or record.config["operator"] != "hessian":
        return [largest]
    step, error = 2 / value, 2 / value * residual / value
    proof = "Two over λ_max, with its error. Above this step size plain gradient descent is unstable at this point."
    if record.scalars["negative_mass"] > 0:
        proof += " Where λ is negative the loss bends downwards, and it moves away at every step size."
    hint = "step size above which plain gradient descent is unstable"
    return [largest, Number("2/λ_max", bounded(step, error), proof, hint=hint)]


def bounded(value: float, bound: float, converged: bool = True) -> str:
    """A number that is no farther from the truth than the bound."""
    return f"{digits_within(value, bound)} ± {bound:.1g}" + ("" if converged else ", not converged")


def _estimate(scalars: Mapping[str, Any], key: str, shown: Callable[[float, float | None], str]) -> str:
    """A number with its standard error, which one probe alone does not give."""
    value, error = scalars[key], scalars[f"{key}_error"]
    return shown(value, error) + (" (error unknown)" if error is None else "")


def sections(records: Sequence[Record]) -> list[Section]:
    """H, G and E side by side, on a linear and on a logarithmic axis, and their largest eigenvalues."""
    lines = {analysis.title_of(record): lines_of(record) for record in records}
    names, known = _listed(lines), [record for record in records if len(analysis.array_of(record, "eigenvalues"))]
    spectra = {name: own.spectrum for name, own in lines.items()}
    proof = bounds(spectra)
    return [
        Section(
            "Density",
            guide=guides.of_density([record.config["operator"] for record in records]),
            charts=[density(f"Spectrum of the {names}", lines)],
            certificate=proof,
        ),
        Section(
            "Log spectrum",
            guide=guides.SIZES,
            charts=[log_density(f"Log spectrum of the {names}", lines)],
            certificate=proof,
        ),
        *([_eigenvalues(known)] if known else []),
    ]


def lines_of(record: Record) -> Lines:
    """The spectrum of a record with its eigenpairs, each with what is said of it on hover."""
    rows = zip(
        *(analysis.array_of(record, key).tolist() for key in ("eigenvalues", "residuals", "converged")), strict=True
    )
    notes = [(v, f"λ{str(rank).translate(BELOW)} = {bounded(v, r, good)}") for rank, (v, r, good) in enumerate(rows, 1)]
    return Lines(analysis.spectrum_of(record), analysis.num_outliers(record), notes)


def bounds(spectra: Mapping[str, Spectrum]) -> str:
    """Bounds on the distance to the true spectra, as a table."""
    words = []
    for name, spectrum in spectra.items():
        far = 0.0 if spectrum.is_exact else spectrum.wasserstein_bound()
        likely = f"with 95 % probability the true spectrum is no farther than W₁ = {far:.2g}"
        words.append(f"{name}: all eigenvalues are known." if spectrum.is_exact else f"{name}: {likely}.")
    return " ".join(words)


def _eigenvalues(records: Sequence[Record]) -> Section:
    """The largest eigenvalues of each matrix, by rank."""
    columns = {analysis.title_of(record): _with_residuals(record) for record in records}
    longest = max(map(len, columns.values()))
    ranks = {"rank": [str(rank) for rank in range(1, longest + 1)]}
    rows = {title: [*cells, *["-"] * (longest - len(cells))] for title, cells in columns.items()}
    words = [f"{matrix_of(record)}: {gap(record)}." for record in records]
    proof = (
        "± is the residual, from a product of its own: the matrix, as products give it, has an eigenvalue that near."
    )
    guide = guides.STEP if any(record.config["operator"] == "hessian" for record in records) else ""
    return Section(
        "Eigenvalues", words, guide=guide, tables=[Table("Of largest magnitude", ranks | rows)], certificate=proof
    )


def _with_residuals(record: Record) -> list[str]:
    arrays = (analysis.array_of(record, key).tolist() for key in ("eigenvalues", "residuals", "converged"))
    return [bounded(*row) for row in zip(*arrays, strict=True)]


def layers(record: Record) -> Section:
    """The diagonal blocks of all layers side by side, by name."""
    own = record.scalars["layers"]
    columns = {
        "layer": list(own),
        "parameters": [f"{numbers['num_parameters']:,}" for numbers in own.values()],
        "spectrum is": ["exact" if numbers["resolution"] is None else "estimated" for numbers in own.values()],
        "largest λ": [end_in_brief(numbers["range"][1], numbers["resolved_zero"]) for numbers in own.values()],
        "smallest λ": [end_in_brief(numbers["range"][0], numbers["resolved_zero"]) for numbers in own.values()],
        **{key.replace("_", " "): [_estimate(n, key, value_in_brief) for n in own.values()] for key in HINTS},
    }
    first = sorted(own, key=lambda layer: -own[layer]["range"][1])[:LAYERS]
    spectra = {layer: Lines(analysis.spectrum_of(record, layer)) for layer in first}
    title = f"Log spectra of the layers, {analysis.title_of(record)}"
    words = [f"The {LAYERS} layers with the largest eigenvalues have a curve."] if len(own) > LAYERS else []
    proof = (
        "A spectrum is exact where multiplying every column of the block costs no more than an estimate: ± is then "
        "what rounding may change. Others come from probes of their own, with their standard error. A number without ± "
        "is right in all its digits. The largest and smallest λ are eigenvalues or nodes."
    )
    charts, tables = [log_density(title, spectra, points=LAYER_POINTS)], [Table("Diagonal blocks", columns)]
    return Section(
        "Layers side by side",
        words,
        guide=guides.BLOCKS,
        charts=charts,
        tables=tables,
        certificate=proof,
        own_names=True,
    )


def work(records: Sequence[Record]) -> Section:
    """The section on what the numbers cost, and how products were computed."""
    rows = [(record, record.scalars.get("products") or {}) for record in records]
    columns = {
        "matrix": [analysis.title_of(record) for record in records],
        "products": [f"{analysis.num_products(record):,}" for record in records],
        "time": [duration(record.scalars["seconds"]) for record in records],
        "path": [str(products.get("path", "-")) for _, products in rows],
        "agreement of paths": [_agreement(products.get("disagreement")) for _, products in rows],
        "kept memory": [_megabytes(products.get("kept_bytes")) for _, products in rows],
        "device": [str(record.provenance.get("device", "-")) for record in records],
    }
    proof = "Products are counted as they are made. A path is compared with the plain one on the first batch."
    return Section("What it took", tables=[Table("", columns)], certificate=proof)


def _agreement(gap: float | None) -> str:
    return "-" if gap is None else f"{gap:.1g}"


def _megabytes(count: float | None) -> str:
    return "-" if count is None else f"{count / 1e6:.3g} MB"


def command(record: Record) -> str:
    """The command that makes this record again."""
    config = record.config
    if config["operator"] not in TYPED and not _is_demo(record):
        return _call(config)
    options = {
        "--operator": TYPED.get(config["operator"]),
        "--eigenpairs": config["num_eigenpairs"],
        "--probes": config["num_probes"],
        "--steps": config["num_steps"],
        "--exact-rows": config["exact_rows"] if config.get("exact_rows", EXACT_ROWS) != EXACT_ROWS else None,
    }
    return typed("ritz spectrum", record, options, *["--per-layer"] * bool(config["per_layer"]))


def typed(command: str, record: Record, options: Mapping[str, Any], *switches: str) -> str:
    """The command with these options and the ones that all analyses have; `ritz demo` for what that has made."""
    config = record.config
    if _is_demo(record):
        return f"ritz demo --seed {config['seed']}"
    options = {**options, "--examples": config.get("examples"), "--seed": config["seed"], "--dtype": config["dtype"]}
    words = [f"{option} {value}" for option, value in options.items() if value is not None]
    layers = [f"--layer {quote(glob)}" for glob in config.get("layers") or ()]
    return " ".join([command, quote(config.get("factory") or "FILE.py:FACTORY"), *words, *layers, *switches])


def _is_demo(record: Record) -> bool:
    return record.id.startswith("demo") and not record.config.get("factory")


def _call(config: Mapping[str, Any]) -> str:
    """The Python call for a matrix that the command does not know."""
    names = ("operator", "num_eigenpairs", "num_probes", "num_steps", "seed", "per_layer")
    return f"analysis.spectrum.run(risk, Settings({', '.join(f'{name}={config[name]}' for name in names)}))"


def _listed(names: Mapping[str, Any]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
