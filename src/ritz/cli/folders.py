"""The folders of results: one for every analysis, and those of the figures' records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

RESULTS = Path("results")  # the folder of the figures' records, unless another is named
SHIPPED = Path(__file__).parents[1] / "papers" / "records"  # those in the wheel; a clone has them in results
LONGEST = 60  # letters of a name that says which layers: file systems take 255 in all
ODD = re.compile(r"[^\w.+-]", re.ASCII)  # what shells and file systems would take for something else


def analysis_folder(
    name: str,
    *,
    layers: Sequence[str] | None = None,
    examples: int | None = None,
    dtype: str | None = None,
    seed: int | None = None,
    suffix: str = "",
) -> Path:
    """`out/NAME`, extended by what determines the analysed matrix: layers, examples, precision, seed.

    How finely it is measured (probes, steps, eigenpairs) is not part of the name: a second run replaces the first.
    """
    parts = [name, *(_written(glob) for glob in sorted(layers or ()))]
    parts += [f"first-{examples}" if examples else "", dtype or "", f"seed-{seed}" if seed else "", suffix]
    return Path("out") / "-".join(filter(None, parts))


def _written(glob: str) -> str:
    """A glob as part of a file's name, unique for each glob: `layer4.*` becomes `layer4.+`."""
    text = glob.replace("*", "+")
    if "+" not in glob and len(text) <= LONGEST and not ODD.search(text):
        return text
    return f"{ODD.sub('_', text)[:LONGEST]}-{sha256(glob.encode()).hexdigest()[:8]}"
