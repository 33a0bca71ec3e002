"""Measures of the spectrum of G and its knockouts: outliers, bulks, effects of knockouts, and errors of Lanczos."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ...record import Record
from ...spectrum import Spectrum
from ..frame.readings import ByReading
from . import gradients
from .gradients import eigenvalues, spectrum_of, with_zeros
from .setting import NUM_CLASSES

C = NUM_CLASSES
LOWEST = 1e-8  # of the largest eigenvalue: the logarithmic axis begins there
WIDTH = 0.15  # of a Gaussian in log λ
STEPS = 128  # of a spectrum whose axis is linear: App. D.2
CLOSE = 0.1  # a distance of two curves that are as good as one
PROMINENCE = 0.3  # of a maximum of log₁₀ of the count, above what separates it from a higher one


def seeds(record: Record) -> list[int]:
    """The seeds of a record."""
    return list(record.config["seeds"])


def _size(record: Record, seed: int) -> int:
    return int(record.scalars[f"{seed}/exact/facts"]["size"])


def exact_spectrum(record: Record, seed: int, name: str) -> Spectrum:
    """The spectrum of G, or of one of its knockouts."""
    return spectrum_of(record, f"{seed}/exact/{name}", _size(record, seed))


def lanczos_spectrum(record: Record, seed: int) -> Spectrum:
    """The spectrum of G by Lanczos, with zeros beyond as many eigenvalues as its Gram matrix has."""
    facts, rank = record.scalars[f"{seed}/lanczos/facts"], int(record.arrays[f"{seed}/exact/G/counts"].sum())
    return with_zeros(spectrum_of(record, f"{seed}/lanczos/G", _size(record, seed), facts["resolution"]), rank)


def values_of(record: Record, seed: int, name: str) -> np.ndarray:
    """The eigenvalues of G, or of one of its knockouts, largest first."""
    return eigenvalues(record, f"{seed}/exact/{name}")


def per_seed(measure: Callable[[Record, int], float]) -> Callable[[Record], dict[str, float]]:
    """A number for every seed."""
    return lambda record: {f"seed {seed}": float(measure(record, seed)) for seed in seeds(record)}


def nonzero(values: np.ndarray) -> np.ndarray:
    """The eigenvalues that are not zero, of a list with the largest first."""
    return values[values > LOWEST * values[0]]


def mini_bulk(record: Record, seed: int) -> np.ndarray:
    """The eigenvalues of G_cross that are not zero, largest first."""
    return nonzero(values_of(record, seed, "only_cross"))[: C * (C - 2)]


def outliers(record: Record, seed: int) -> float:
    """How many eigenvalues of G lie above the largest of G_within."""
    return float((values_of(record, seed, "G") > values_of(record, seed, "only_within")[0]).sum())


def outliers_in_words(record: Record) -> str:
    """Why there are other numbers of them than C."""
    counts = per_seed(outliers)(record).values()
    fewer = "Some class means are no longer than the spread around them." if min(counts) < C else ""
    more = "Cross-class means raise the first of the bulk above the largest of G_within." if max(counts) > C else ""
    return f"{fewer} {more}".strip()


def left_of_outliers(record: Record) -> ByReading:
    """How many eigenvalues of G without its class part are as large as the least outlier of G, or larger.

    The C-th may lie far below the others: the one before it and the one behind it say how much hangs on its place.
    """
    ways = {"from the C-th of G on": C, "from the one before it on": C - 1, "from the one behind it on": C + 1}
    left = lambda rank: per_seed(
        lambda record, seed: float((values_of(record, seed, "class") >= values_of(record, seed, "G")[rank - 1]).sum())
    )
    return ByReading((words, left(rank)(record)) for words, rank in ways.items())


def lost_mini_bulk(record: Record, seed: int) -> float:
    """The share of the eigenvalues of G among those of G_cross that its knockout removes."""
    own = mini_bulk(record, seed)
    before, after = (count_among(own, values_of(record, seed, name)) for name in ("G", "cross"))
    return (before - after) / before if before else float("nan")


def count_among(own: np.ndarray, values: np.ndarray) -> int:
    """How many eigenvalues lie where a part has the middle nine tenths of its own."""
    low, high = np.quantile(own, (0.05, 0.95))
    return int(((values >= low) & (values <= high)).sum())


def lost_mass(record: Record, seed: int) -> float:
    """The share of ∫λ of G that the knockout of G_within removes, in the range of nine tenths of its own.

    By number, all but C(C - 1) eigenvalues disappear in any case, because G without it has no more.
    """
    own = values_of(record, seed, "only_within")
    below = own.cumsum() / own.sum()
    high, low = (float(own[np.searchsorted(below, share)]) for share in (0.05, 0.95))
    before, after = (
        values[(values >= low) & (values <= high)].sum()
        for values in (values_of(record, seed, name) for name in ("G", "within"))
    )
    return float(1 - after / before) if before else float("nan")


def position(record: Record) -> ByReading:
    """log₁₀ of the median eigenvalue of G_cross over that of G_within, or over G_within's average as Fig. 6 has it."""
    ways = {
        "medians of both": lambda record, seed: _median(record, seed, "only_within"),
        "the average of G_within, as in Fig. 6 (2019: 7)": average_of_within,
    }
    above = lambda spread: per_seed(
        lambda record, seed: np.log10(_median(record, seed, "only_cross") / spread(record, seed))
    )
    return ByReading((words, above(spread)(record)) for words, spread in ways.items())


def _median(record: Record, seed: int, name: str) -> float:
    """The median of the eigenvalues that are not zero."""
    return float(np.median(nonzero(values_of(record, seed, name))))


def average_of_within(record: Record, seed: int) -> float:
    """tr G_within,c / N, the mean over the classes: as printed, N for the rank."""
    return float(record.arrays[f"{seed}/exact/within_traces"].mean() / record.config["piece"]["per_class"])


def bulk_share(record: Record, seed: int) -> float:
    """tr G_within over the trace of G without its C largest eigenvalues."""
    G, W = (values_of(record, seed, name) for name in ("G", "only_within"))
    return float(W.sum() / G[C:].sum())


def peaks(y: np.ndarray) -> np.ndarray:
    """The places of the maxima of a smoothed count, from the left: of log₁₀ of it, with a prominence of 0.3."""
    from scipy.signal import find_peaks  # importing it takes longer than all of ritz

    heights = np.concatenate([[-9.0], np.log10(np.maximum(y, 1e-9)), [-9.0]])
    return np.asarray(find_peaks(heights, prominence=PROMINENCE)[0]) - 1


def _bulks(record: Record, seed: int) -> np.ndarray:
    """The heights of the bulks of the log spectrum of G, from the left."""
    _, y = _curve(exact_spectrum(record, seed, "G"))
    return y[peaks(y)]


def modes(record: Record, seed: int) -> float:
    """How many bulks the log spectrum of G has."""
    return float(len(_bulks(record, seed)))


def place_of_main(record: Record, seed: int) -> float:
    """The position of the highest bulk, counted from the left."""
    return float(np.argmax(_bulks(record, seed)) + 1)


def height_of_main(record: Record, seed: int) -> float:
    """The height of the highest bulk over that of the next; NaN if there is only one."""
    heights = np.sort(_bulks(record, seed))
    return float(heights[-1] / heights[-2]) if len(heights) > 1 else float("nan")


def unresolved(record: Record, seed: int) -> float:
    """The share of the eigenvalues of G_cross that 128 Lanczos steps do not tell from zero: below λ_max(G)/127."""
    return float((mini_bulk(record, seed) < values_of(record, seed, "G")[0] / (STEPS - 1)).mean())


def own_trace(record: Record, seed: int) -> float:
    """tr G_c=c' over tr G_class."""
    G, rest, means = (values_of(record, seed, name).sum() for name in ("G", "own", "only_class"))
    return float((G - rest) / means)


def own_effect(record: Record, seed: int) -> float:
    """The distance of G - G_own from G in the distribution of log λ, relative to the least of another knockout."""
    distances = {name: log_distance(record, seed, name) for name in ("class", "cross", "within", "own")}
    return distances.pop("own") / min(distances.values())


def log_distance(record: Record, seed: int, name: str) -> float:
    """∫ |N(u) - N'(u)| du of the numbers of eigenvalues above e^u, from LOWEST of the largest on: G and a knockout."""
    G, other = values_of(record, seed, "G"), values_of(record, seed, name)
    u = np.linspace(np.log(LOWEST * G[0]), np.log(G[0]), 4000)
    above = [len(v) - np.searchsorted(np.sort(v), np.exp(u)) for v in (G, other)]
    return float(np.trapezoid(np.abs(above[0] - above[1]), u))


def lanczos_error(record: Record, seed: int) -> float:
    """The distance of the log spectrum of G by Lanczos from the exact one, smoothed alike, above LOWEST."""
    (u, exact), (_, ours) = (_curve(s) for s in (exact_spectrum(record, seed, "G"), lanczos_spectrum(record, seed)))
    return curve_distance(u, exact, ours)


def right_from(record: Record, seed: int) -> float:
    """log₁₀ of the least λ/λ_max above which Lanczos is a tenth at most from the exact log spectrum; 0 for none."""
    (u, exact), (_, ours) = (_curve(s) for s in (exact_spectrum(record, seed, "G"), lanczos_spectrum(record, seed)))
    decades = (u - float(np.log(values_of(record, seed, "G")[0]))) / np.log(10)
    below = np.arange(0, int((decades < 0).sum()), 10)
    near = [at for at in below if curve_distance(u[at:], exact[at:], ours[at:]) <= CLOSE]
    return float(decades[near[0]]) if near else 0.0


def curve_distance(x: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """∫ |q - q̂| over half of ∫ q + q̂: from 0 to 2."""
    return float(2 * np.trapezoid(np.abs(first - second), x) / max(np.trapezoid(first + second, x), 1e-300))


def missed_decades(record: Record, seed: int) -> float:
    """The share of the decades of λ with ten eigenvalues at least where Lanczos counts less than half or over twice."""
    G, spectrum = values_of(record, seed, "G"), lanczos_spectrum(record, seed)
    edges = G[0] * 10.0 ** np.arange(-8, 1)
    mass = np.diff(np.asarray(spectrum.cdf(torch.as_tensor(edges)))) * spectrum.size
    counts = np.histogram(G, edges)[0]
    ratios = mass[counts >= 10] / counts[counts >= 10]
    return float(((ratios < 0.5) | (ratios > 2)).mean()) if len(ratios) else float("nan")


def in_means(name: str) -> Callable[[Record], dict[str, float] | None]:
    """The mean ‖Pv‖² of the C largest eigenvectors of G or H, P the projection on the span of the class means.

    None where there was no room for the means.
    """

    def measured(record: Record) -> dict[str, float] | None:
        keys = {f"seed {seed}": f"{seed}/origins/{name}/in_class" for seed in seeds(record)}
        if not all(key in record.arrays for key in keys.values()):
            return None
        return {seed: float(record.arrays[key][:C].mean()) for seed, key in keys.items()}

    return measured


def least_layer(record: Record) -> dict[str, float] | None:
    """The least ‖P_l v_l‖²/‖v_l‖² of any layer l, averaged over C eigenvectors."""
    keys = {f"seed {seed}": f"{seed}/origins/layer_inside" for seed in seeds(record)}
    if not all(key in record.arrays for key in keys.values()):
        return None
    return {seed: float(record.arrays[key].mean(1).min()) for seed, key in keys.items()}


def explained(record: Record, seed: int) -> float:
    """The share of G in the C largest eigenvalues of H; the rest is due to E."""
    return 1 - float(np.mean(record.arrays[f"{seed}/origins/H/shares/functional"][:C]))


def explained_by_means(record: Record, seed: int) -> float:
    """The share of G_class, G_cross and G_own together in the C largest eigenvalues of H."""
    return float(sum(record.arrays[f"{seed}/origins/H/shares/{part}"][:C].mean() for part in gradients.OTHERS))


def _curve(spectrum: Spectrum) -> tuple[np.ndarray, np.ndarray]:
    """The number of eigenvalues per unit of u = log λ, from LOWEST of the largest on."""
    top = spectrum.range[1]
    u = torch.linspace(float(np.log(LOWEST * top)), float(np.log(top)) + 4 * WIDTH, 3000, dtype=torch.float64)
    y = spectrum.size * spectrum.log_density(u, width=WIDTH, floor=1e-3 * LOWEST * top)
    return u.numpy(), y.numpy()
