"""Statements about curvature along training: the trace in Fig. 3 and the top eigenvalues in Fig. 4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...record import Record
from ..frame.accuracy import eigenvalue_statement
from ..frame.readings import ByReading, Reading, words_of
from ..frame.statements import OURS, at_most, each
from ..frame.statistics import spearman
from .paper import says
from .setting import TO_A_PERCENT, by_title, distance_to_minimum, titles

# Fixed before the runs at preset "paper": see docs/decisions.md.
VERY_WELL = at_most(0.05, partly=0.2)  # curves that are, or nearly are, indistinguishable in a plot
WITHIN_NOISE = at_most(4.0, partly=6.0)  # standard errors: four are not seen once in ten thousand measurements
FALLS = at_most(-0.9, partly=-0.5)  # a rank correlation, as for the curves that rise in Fig. 1
NO_MORE = at_most(1.0)
PROBES = (
    Reading("probes", "gaussian", "Gaussian vectors", 'App. C, Figure 3, "z ~ N(0, I)"'),
    Reading("probes", "signs", "random signs", "not printed: the usual form of Hutchinson's method"),
)


def pair_errors(measured: np.ndarray, printed: np.ndarray) -> np.ndarray:
    """|λ - λ'|/λ, rank by rank."""
    return np.abs(printed - measured) / np.abs(measured)


def _differences(record: Record, kind: int = 0) -> np.ndarray:
    """The relative difference of Hutchinson's estimate from (7), data × pause."""
    printed = record.arrays["printed"]
    return np.asarray(np.abs(record.arrays["measured"][..., kind] - printed) / np.abs(printed))


def _standard_errors(record: Record, kind: int = 0) -> np.ndarray:
    """The difference of the estimate from (7), in units of its standard error."""
    difference = np.abs(record.arrays["measured"][..., kind] - record.arrays["printed"])
    return np.asarray(difference / record.arrays["error"][..., kind])


def _by_probes(values: Callable[[Record, int], np.ndarray]) -> Callable[[Record], ByReading]:
    """A number for each data set and each kind of probes."""

    def numbers(record: Record) -> ByReading:
        kinds = enumerate(record.config["probes"])
        return ByReading({words_of(PROBES, "probes", k): by_title(record, values(record, n)) for n, k in kinds})

    return numbers


def _largest_difference(record: Record) -> str:
    """The epoch at which (7) and the estimate differ most, in words."""
    relative, units = _differences(record), _standard_errors(record)
    row, column = np.unravel_index(np.argmax(np.nan_to_num(relative, nan=np.inf)), relative.shape)
    return (
        f"The largest difference, {relative[row, column]:.2g} of (7), is at epoch "
        f"{record.arrays['epochs'][row, column]:g} of {titles(record)[row]}: {units[row, column]:.2g} standard errors "
        "of the estimate."
    )


def _falls(record: Record, key: str) -> dict[str, float]:
    """The rank correlation of a series with the epoch."""
    rows = zip(titles(record), record.arrays["epochs"], record.arrays[key], strict=True)
    return {name: spearman(epochs, values) for name, epochs, values in rows}


TRACE = (  # Fig. 3
    says(
        "Eq. (7) holds very well for the sum of the eigenvalues of the Hessian (largest difference along training from "
        "Hutchinson's estimate, relative to (7)).",
        where="Fig. 3; Sec. 2.2",
        measured=_by_probes(lambda record, kind: _differences(record, kind).max(1)),
        rule=each(VERY_WELL),
        expected=0.0,
        why=_largest_difference,
    ),
    says(
        "It does so even early in training, when the loss is high (difference after the first epoch, relative to (7)).",
        where="Fig. 3; Sec. 2.2",
        measured=_by_probes(lambda record, kind: _differences(record, kind)[:, 0]),
        rule=each(VERY_WELL),
        expected=0.0,
        why=_largest_difference,
    ),
    says(
        "Eq. (7) is no approximation but the trace of the full Hessian at any loss (largest difference from "
        "Hutchinson's estimate, in standard errors).",
        paper=OURS,
        where="Fig. 3",
        measured=_by_probes(lambda record, kind: _standard_errors(record, kind).max(1)),
        rule=each(WITHIN_NOISE),
        expected="noise",
        why=_largest_difference,
    ),
    says(
        "The loss gets nearer to zero with training, as Assumption 1 has it (rank correlation of loss and epoch).",
        where="Sec. 2, after Assumption 1",
        measured=lambda record: _falls(record, "loss"),
        rule=each(FALLS),
        expected=-1.0,
        why="It does not fall from one pause to the next.",
    ),
)


def _mean_errors(record: Record) -> np.ndarray:
    """The relative error of (15), averaged over the ranks: data × pause."""
    return pair_errors(record.arrays["measured"], record.arrays["printed"]).mean(2)


def _correlations_with_epochs(record: Record) -> dict[str, float]:
    rows = zip(titles(record), record.arrays["epochs"], _mean_errors(record), strict=True)
    return {name: spearman(epochs, errors) for name, epochs, errors in rows}


def _steps_down(record: Record) -> str:
    errors = _mean_errors(record)
    counts = zip(titles(record), np.sum(np.diff(errors) < 0, 1), strict=True)
    steps = ", ".join(f"{name} {count} of {errors.shape[1] - 1}" for name, count in counts)
    return f"Steps from one pause to the next in which the error falls: {steps}."


def _errors_of_10(record: Record) -> np.ndarray:
    """The error of σₓ²(‖W₁‖₂² + ‖W₂‖₂²) at the end of training, relative to the measured sharpness."""
    squares = (record.arrays["norms"][:, -1] ** 2).sum(1)
    return np.asarray(np.abs(record.config["sigma_x"] ** 2 * squares / record.arrays["measured"][:, -1, 0] - 1))


def _errors_of_11(record: Record) -> np.ndarray:
    """The error of σₓ²(d₂‖W₁‖²_F + d₀‖W₂‖²_F) at the end of training, relative to the estimated trace."""
    return np.asarray(np.abs(record.arrays["printed_trace"][:, -1] / record.arrays["trace"][:, -1, 0] - 1))


def _errors_of_traces(record: Record) -> str:
    relative = record.arrays["trace"][:, -1, 1] / record.arrays["trace"][:, -1, 0]
    return f"The estimate of the trace has a relative standard error of up to {relative.max():.2g}."


def _of_the_minimum(record: Record) -> str:
    ends = (record.arrays[key][:, -1] for key in ("loss", "rest", "learning_rate"))
    return f"is of the Gauss-Newton matrix, H at a minimum. {distance_to_minimum(*ends)}"


def _share_of_nonzero(record: Record) -> float:
    d0, d1, d2 = record.config["counted"]
    return float(record.arrays["num_nonzero"][0]) / (min(d0, d1) * min(d1, d2))


def _residuals(record: Record) -> dict[str, float]:
    relative = record.arrays["error"] / record.arrays["measured"][..., :1]
    return by_title(record, relative.max((1, 2)))


def _flattening(record: Record) -> dict[str, float]:
    """Sharpness and parameter norm at the epoch of the least norm, each relative to its value after the first epoch."""
    ratios = {}
    for index, name in enumerate(titles(record)):
        sizes, sharpness = record.arrays["size"][index], record.arrays["measured"][index, :, 0]
        least = int(np.argmin(sizes))
        ratios[f"{name}, sharpness"] = float(sharpness[least] / sharpness[0])
        ratios[f"{name}, ‖θ‖²"] = float(sizes[least] / sizes[0])
    return ratios


def _least_norm_in_words(record: Record) -> str:
    rows = zip(titles(record), record.arrays["epochs"], record.arrays["size"], strict=True)
    texts = [f"{name} {int(epochs[int(np.argmin(sizes))])}" for name, epochs, sizes in rows]
    return f"The epoch of the least parameter norm: {', '.join(texts)}."


PAIRS = (  # Fig. 4
    says(
        "Sharpness decreases in early training since the parameter norm decreases (both where the norm is least, over "
        "those after the first epoch).",
        where="Sec. 3, after eq. (11)",
        measured=_flattening,
        rule=each(at_most(0.99, partly=1.0)),
        expected="< 1",
        why=_least_norm_in_words,
    ),
    says(
        "Eq. (15) becomes increasingly precise as training progresses (rank correlation of its mean error with the "
        "epoch).",
        where="Fig. 4; App. B",
        measured=_correlations_with_epochs,
        rule=each(FALLS),
        expected=-1.0,
        why=_steps_down,
    ),
    says(
        "At the end of training eq. (15) gives the top eigenvalues of the Hessian (mean error, relative to the "
        "measured ones).",
        where="Fig. 4; App. B",
        measured=lambda record: by_title(record, _mean_errors(record)[:, -1]),
        rule=each(TO_A_PERCENT),
        expected=0.0,
        why=lambda record: f"(15) {_of_the_minimum(record)}",
    ),
    says(
        "The sharpness of two layers is σₓ²(‖W₁‖₂² + ‖W₂‖₂²), not the larger of the two (error at the end, relative "
        "to the measured one).",
        where="eq. (10)",
        measured=lambda record: by_title(record, _errors_of_10(record)),
        rule=each(TO_A_PERCENT),
        expected=0.0,
        why=lambda record: f"(10) {_of_the_minimum(record)}",
    ),
    says(
        "The sum of the eigenvalues of two layers is σₓ²(d₂‖W₁‖²_F + d₀‖W₂‖²_F), of trained networks (error at the "
        "end, relative to Hutchinson's estimate).",
        where="eq. (11)",
        measured=lambda record: by_title(record, _errors_of_11(record)),
        rule=each(TO_A_PERCENT),
        expected=0.0,
        why=_errors_of_traces,
    ),
    says(
        "At most min(d₀, d₁) · min(d₁, d₂) eigenvalues are non-zero (their number for a small network, in units of "
        "that).",
        where="App. B, last paragraph",
        measured=_share_of_nonzero,
        rule=NO_MORE,
        expected=1.0,
        why=lambda record: (
            "(15) runs over i ≤ d₀ and j ≤ d₂ with singular values continued by zeros, so that a hidden layer narrower "
            f"than one of them leaves more eigenvalues: here d = {', '.join(map(str, record.config['counted']))}."
        ),
    ),
    eigenvalue_statement(
        _residuals,
        paper=OURS,
        where="Fig. 4",
        why="The search ended before all pairs had converged.",
        what="are eigenvalues of the Hessian",
        scale="λ₁",
    ),
)
