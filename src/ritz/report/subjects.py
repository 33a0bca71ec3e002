"""From records to articles: what was measured of one model stands together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType

from ..analysis import spectrum as analysis
from ..analysis.schemas import check_entries
from ..errors import ArgumentError, RitzError, first_line
from ..record import Record
from ..theory import ClosedForm
from . import class_structure, closed_forms, guides, paper_figures, spectra
from .articles import Article, Section


@dataclass
class Subject:
    """The records of one model: at most one spectrum of each matrix, at most one class analysis."""

    spectra: dict[str, Record] = field(default_factory=dict)
    classes: Record | None = None

    def records(self) -> list[Record]:
        """All records of the model."""
        return [*self.spectra.values(), *([self.classes] if self.classes else [])]

    def ranked_spectra(self) -> list[Record]:
        """The records of spectra, those of the best known matrices first."""
        return [self.spectra[name] for name in sorted(self.spectra, key=_rank)]

    def takes(self, record: Record) -> bool:
        """Whether the record is of this model, and adds something to what is there."""
        mine = self.records()
        free = self.classes is None if record.preset == "classes" else record.config["operator"] not in self.spectra
        return free and all(_model(own) == _model(record) for own in mine)

    def add(self, record: Record) -> None:
        """Add a record that fits."""
        if record.preset == "classes":
            self.classes = record
        else:
            self.spectra[record.config["operator"]] = record


def articles(records: Sequence[Record], theory: ClosedForm | None = None) -> list[Article]:
    """An article for each model, in the order of their first records, and one for each figure of a paper.

    A closed form is held against the first spectrum of every model that has its size; that of a record, against it.
    """
    parts: list[Subject | Record] = []
    for record in (record.detached() for record in records):
        check_entries(record)
        if record.preset not in ("analysis", "classes"):
            parts.append(record)
            continue
        own = next((part for part in parts if isinstance(part, Subject) and part.takes(record)), None)
        if own is None:
            parts.append(own := Subject())
        own.add(record)
    return [_readable(part, theory) for part in parts]


def _readable(part: Subject | Record, theory: ClosedForm | None) -> Article:
    """The article, or a refusal of records whose entries do not fit each other, or not their arrays."""
    try:
        return _article(part, theory) if isinstance(part, Subject) else paper_figures.article(part)
    except RitzError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        names = part.id if isinstance(part, Record) else " and ".join(dict.fromkeys(own.id for own in part.records()))
        raise ArgumentError(
            f"No page can be made of the record {names!r}: {first_line(error)}",
            "What it holds does not fit together: it was changed by hand, or another version of ritz wrote it.",
            "Make the record again, or name another one.",
        ) from error


def _model(record: Record) -> tuple[object, ...]:
    """The facts that records of the same model have in common."""
    config, scalars = record.config, record.scalars
    facts = (config.get(name) for name in ("factory", "examples", "num_examples", "dtype"))
    return (*facts, tuple(config["parameters"]), scalars["num_terms"], f"{scalars['loss']:.5g}")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _article(subject: Subject, theory: ClosedForm | None) -> Article:
    measured, classes = subject.ranked_spectra(), subject.classes
    headlines: list[tuple[ModuleType, Record]] = [(spectra, record) for record in measured[:1]]
    if classes:
        headlines.append((class_structure, classes))
    about, first = headlines[0]
    return Article(
        _title(first),
        _sentence("; ".join(kind.finding(record) for kind, record in headlines)),
        " ".join(kind.proof(record) for kind, record in headlines),
        _analysed(first),
        about.numbers(first),
        _sections(measured, classes, theory),
        _reproduction([*measured, classes] if classes else measured),
        guides.TRUST,
    )


def _sections(measured: list[Record], classes: Record | None, theory: ClosedForm | None) -> list[Section]:
    """What was measured, from the whole matrix to its layers; then closed forms, and what all of it took."""
    sections = spectra.sections(measured) if measured else []
    if classes:
        sections += class_structure.sections(classes, counted=bool(measured))
    sections += [spectra.layers(record) for record in measured if record.scalars["layers"]]
    if classes and classes.scalars["layers"]:
        sections.append(class_structure.layers(classes))
    sections += _closed_forms(measured, theory)
    if measured:
        sections.append(spectra.work(measured))
    return sections


def _closed_forms(measured: list[Record], theory: ClosedForm | None) -> list[Section]:
    """The closed forms of the records that have one; a theory that was given belongs to the first."""
    theories = [theory, *[None] * len(measured)]
    forms = [(record, _form(record, own)) for record, own in zip(measured, theories, strict=False)]
    return [closed_forms.section(record, form) for record, form in forms if form is not None]


def _title(record: Record) -> str:
    """The factory or the name of a record, with the layers, examples and precision that were chosen."""
    config, name = record.config, record.config.get("factory") or record.id
    layers, examples = config.get("layers") or (), config.get("examples")
    parts = [" and ".join(layers), f"first {examples:,} examples" if examples else ""]
    parts += [config["dtype"]] if config["dtype"] != "float32" else []
    return ", ".join([name, *filter(None, parts)])


def _form(record: Record, theory: ClosedForm | None) -> ClosedForm | None:
    """The closed form that was given if it fits, else the one that the record has."""
    return theory if theory is not None and _fits(theory, record) else analysis.theory_of(record)


def _rank(operator: str) -> int:
    known = list(spectra.TYPED)
    return known.index(operator) if operator in known else len(known)


def _analysed(record: Record) -> Section:
    """The model, the data and the loss."""
    scalars, config = record.scalars, record.config
    facts = {
        "model": ", from ".join(filter(None, [config.get("model"), config.get("factory") or record.id])),
        "parameters": f"{scalars['num_parameters']:,} in {len(config['parameters'])} tensors, {config['dtype']}",
        "data": f"{config['num_examples']:,} examples, {scalars['num_terms']:,} terms of the loss",
    }
    if "num_classes" in scalars:
        facts["classes"] = f"{scalars['num_classes']:,}"
    loss = f"{scalars['loss']:.6g}, with a gradient of norm {scalars['gradient_norm']:.4g}"
    facts["loss"] = ": ".join(filter(None, [config.get("loss"), loss]))
    if scalars.get("accuracy") is not None:
        facts["accuracy"] = f"{scalars['accuracy']:.2%} on these data"
    proof = "One pass over all data at the given parameters; the model is evaluated as it was handed over."
    return Section("What was analysed", facts=facts, certificate=proof)


def _reproduction(records: Sequence[Record]) -> Section:
    """The commands, and everything else that decides the numbers."""
    facts = {name: str(value) for name, value in records[0].provenance.items() if value is not None}
    commands = [(class_structure if record.preset == "classes" else spectra).command(record) for record in records]
    proof = "Written down by the run itself, when it began and when it ended."
    return Section("How to reproduce it", facts=facts, code="\n".join(dict.fromkeys(commands)), certificate=proof)


def _fits(theory: ClosedForm, record: Record) -> bool:
    return theory.size == record.scalars.get("num_parameters")


def check(records: Sequence[Record], theory: ClosedForm | None = None) -> None:
    """Refuse to write a page about nothing, or with a theory of something else."""
    if theory is not None and not any(_fits(theory, record) for record in records if record.preset == "analysis"):
        raise ArgumentError(
            f"A closed form of {theory.size:,} eigenvalues was given, and no record has a spectrum of as many.",
            "A closed form can be compared only with a spectrum of the same matrix.",
            "Restrict the risk to the parameters that the closed form is about: risk.restricted_to(names).",
        )
    if not records:
        raise ArgumentError(
            "No record was given.",
            "A page is made of what was measured.",
            "Analyse a model first: ritz.analysis.spectrum.run(risk), or ritz demo.",
        )
