"""The section on theory: a closed form beside the measured spectrum."""

from __future__ import annotations

from ..analysis import spectrum as analysis
from ..analysis.comparison import Entry, distance
from ..record import Record
from ..theory import ClosedForm
from .articles import Section, Table
from .charts import Axis, Chart, Series

ROWS = 40  # lines of a table


def section(record: Record, form: ClosedForm) -> Section:
    """The section that compares the measured spectrum with the closed form, as a whole and line by line."""
    theory, measured = Entry.of_spectrum("closed form", form.spectrum()), Entry.of(record)
    gap = distance(theory, measured)
    verdict = "That is within the error of the measurement" if gap.at_least == 0 else "That is more than noise"
    model = record.scalars.get("closed_form", {}).get("of")
    words = [f"There is a closed form for the spectrum of this model: {model}."] if model else []
    words += [
        f"The closed form has {form.size:,} eigenvalues in {len(form.groups):,} lines. The measured spectrum "
        f"differs from it by {gap.sentence}. {verdict}."
    ]
    proof = (
        "The closed form is exact where its assumptions hold; the measurement is as sure as its spectrum and "
        "residuals. Where ritz recognised the model by itself, the formula gives the outputs of the model on these "
        "data."
    )
    charts = [_chart(record, form)] if len(analysis.array_of(record, "eigenvalues")) else []
    matrix = "" if record.config["operator"] == "hessian" else f": {analysis.title_of(record)}"
    return Section(
        f"Theory against measurement{matrix}", words, charts=charts, tables=[_table(form)], certificate=proof
    )


def _chart(record: Record, form: ClosedForm) -> Chart:
    """The largest eigenvalues in magnitude, paired by rank: on the diagonal, theory and measurement agree."""
    values, residuals = (analysis.array_of(record, key).double() for key in ("eigenvalues", "residuals"))
    predicted = form.eigenvalues()
    predicted = predicted[predicted.abs().argsort(descending=True, stable=True)][: len(values)]
    x, y = predicted.sort().values, values.sort().values
    errors = residuals[values.argsort()]
    notes = [f"{b:.6g} ± {e:.1g}, closed form {a:.6g}" for a, b, e in zip(x, y, errors, strict=True)]
    ends = [float(x.min()), float(x.max())]
    series = (
        Series("eigenvalues", "points", x.tolist(), y.tolist(), (y - errors).tolist(), (y + errors).tolist(), notes),
        Series("equal", "line", ends, ends, colour=1),
    )
    axes = Axis("eigenvalue, closed form", ("linear", "symlog")), Axis("eigenvalue, measured", ("linear", "symlog"))
    return Chart("Eigenvalues, theory and measurement", "What lies on the line agrees.", *axes, series)


def _table(form: ClosedForm) -> Table:
    groups = sorted(form.groups, key=lambda group: -abs(group.value))[:ROWS]
    columns = {
        "line": [group.name for group in groups],
        "eigenvalue": [f"{group.value + 0.0:.6g}" for group in groups],
        "multiplicity": [f"{group.multiplicity:,}" for group in groups],
    }
    return Table("Lines of the closed form, largest first", columns)
