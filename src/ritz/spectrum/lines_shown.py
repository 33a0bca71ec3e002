"""What a notebook shows of lines: a table of them, and a density as a small picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from ..record.cards import card

WIDTH, HEIGHT = 320, 80  # pixels
DECADES = 4.0  # that the picture shows below its peak


def lines_card(title: str, columns: Mapping[str, Sequence[object]], *, sentences: Sequence[str] = ()) -> str:
    """A table of lines under a title, also for `theory`, which knows spectra and no records."""
    return card(title, columns=columns, sentences=sentences)


def density_card(title: str, facts: Mapping[str, object], x: Float[Tensor, " g"], y: Float[Tensor, " g"]) -> str:
    """Facts under the picture of a density, which is drawn on a logarithmic axis."""
    heights = (y / y.max()).clamp(min=10**-DECADES).log10() / DECADES + 1
    across = (x - x[0]) / (x[-1] - x[0]) * WIDTH
    points = " ".join(f"{a:.1f},{HEIGHT * (1 - h):.1f}" for a, h in zip(across.tolist(), heights.tolist(), strict=True))
    look = 'fill="none" stroke="#0072B2" stroke-width="1.5"'
    box = f'width="{WIDTH}" height="{HEIGHT + 4}" viewBox="0 -2 {WIDTH} {HEIGHT + 4}"'
    picture = (
        f'<svg {box} role="img" style="display:block"><title>density</title><polyline {look} points="{points}"/></svg>'
    )
    return card(title, facts, picture=picture)
