"""All batches of a risk, linearised: built by the chosen path, and kept between products as memory allows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import OutOfMemoryError, first_line
from ..foreign_errors import is_out_of_memory
from ..risk import Risk
from ..risk.batches import Batch, Batches, naming_batch
from ..risk.distributed import in_step, smallest_over_ranks
from ..risk.memory import forget_unused, free_memory
from ..risk.precision import Precision
from .agreement import tolerance
from .columns import Columns, columns_for, pass_bytes
from .curvatures import Contribution, Curvature, Map
from .info import Info
from .linearized import DoesNotApply, Linearized, ReverseMode
from .path_choice import Trial, try_paths
from .paths import PATHS, Path
from .pieces import norm, quiet, random_row

Result = TypeVar("Result")
FORTH, BACK = "forth", "back"  # directions of linear maps
SEARCH_AFTER = 300  # products after which a search for cuDNN's fastest convolution, as long as these, is likely to pay
TRIAL_EXAMPLES = 16  # examples on which paths are compared, where examples are independent
LARGE_BYTES = 2**28  # bytes of θ above which vectors of its size dominate the memory
KINKS = 2.0  # times what such a change of θ does to a product: how far the size of batches may change it
MOST_OF_KINKS = 0.1  # of the product, whatever rounding does
HEADROOM = 2.0  # what a pass takes, relative to what its graph keeps
AS_GIVEN = "the batches as they were given"  # a choice for all matrices of a risk: neither joined nor cut


class ExamplesMeet(Exception):
    """Examples of a pass over joined batches, or over part of one, do not give what they give in their own batch."""


class ProductIsNaN(Exception):
    """A product that is NaN by a path that was right on the first examples."""


class LinearizedRisk:
    """The contributions of all batches to products with a curvature matrix."""

    def __init__(self, risk: Risk, curvature: Curvature, paths: tuple[Path, ...] = PATHS) -> None:
        self.risk, self.curvature, self.paths = risk, curvature, paths
        self._trial: Trial | None = None
        self._batches: Batches = risk.batches
        self._columns: dict[str, Columns] = {}  # by direction of maps, which may differ in what can be batched
        self._num_products, self._num_batches = 0, 0  # products made so far; batches in the last one
        self._maps: dict[int, Contribution] = {}
        self._most: int | None = None  # examples in one pass, where memory sets a limit
        self._finite = False  # whether a product over all data was seen to be finite
        self._least_room: float | None = None  # the least of all ranks, after their trial

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the graphs, which are built anew where they are needed."""
        return self.__dict__ | {"_maps": {}}

    @property
    def info(self) -> Info:
        """What the trial of the paths saw; asking before the first product runs the trial."""
        trial = self.prepare()
        return Info(
            path=trial.path.name,
            disagreement=trial.disagreement,
            tangent_error=trial.tangent_error,
            num_batches=self._num_batches or sum(1 for _ in self._batches),
            columns=self._columns[FORTH].width if FORTH in self._columns else None,
            kept_bytes=self.risk.budget.taken(self),
            seconds=trial.seconds,
        )

    @property
    def room(self) -> float:
        """Bytes left for vectors beside a pass over one batch: kept graphs give way to them.

        On several ranks it is the least of all, as it was at first, because solvers decide by it what to multiply
        together.
        """
        self.prepare()
        if self.risk.group is not None and self._least_room is not None:
            return self._least_room
        return self._own_room()

    def _own_room(self) -> float:
        assert self._trial is not None
        largest = max(len(batch) for batch in self._batches)
        return max(0.0, self.risk.budget.total - self._trial.graph_bytes(largest))

    def for_each(self, use: Callable[[Batch, Contribution], None]) -> None:
        """Call `use` with the contribution of every batch; one that is not kept is freed before the next is built."""
        trial = self.prepare()
        self.risk.budget.begin(self)
        self._num_products += 1
        with quiet():
            for number, batch in enumerate(self._batches):
                with naming_batch("a product on", batch):
                    use(batch, self._maps.get(number) or self._map(number, batch, trial))
        self._num_batches = number + 1

    def add(
        self, product: Map, rows: Any, into: Any, direction: str = FORTH, precision: Precision | None = None
    ) -> None:
        """into += the products with all rows, several at a time where that pays; by default in the risk's precision."""
        kind = direction if precision in (None, self.risk.tangent_precision) else f"{direction}, {precision}"
        if kind not in self._columns:
            self._columns[kind] = Columns(self._most_columns(self.prepare()))
        last = product.finish if isinstance(product, Contribution) else None
        with self._tangent_numerics(precision):
            self._columns[kind].add(product, rows, into, last)

    def last(self, contribution: Contribution, row: Any, precision: Precision | None = None) -> Any:
        """The product with a single row, where there is nothing yet to add it to."""
        with self._tangent_numerics(precision):
            return contribution.finish(row)

    def within_memory(self, work: Callable[[], Result]) -> Result:
        """Repeat the work from its beginning until memory suffices: keeping less, then taking less at a time.

        Where joining or cutting batches changed the result, go on with the batches as they were given; where products
        are NaN, by another path.
        """
        while True:
            try:
                return work()
            except ExamplesMeet:
                self._take_as_given()
                continue
            except ProductIsNaN:
                self._take_next_path()
                continue
            except (RuntimeError, MemoryError) as error:
                if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):  # there is nothing left to try
                    raise
                message = first_line(error)
            self._relent(message)  # outside of the handler, whose traceback holds what filled the memory

    def check(self, total: Tensor) -> None:
        """See once that no example has a derivative of NaN, by this path; the first ones alone do not say."""
        if self._finite or self.risk.path is not None:
            return
        if bool(total.isnan().any()) and self._later_paths():
            raise ProductIsNaN
        self._finite = True

    def drop(self) -> None:
        """Give back all graphs; they are built anew when they are needed."""
        self._maps.clear()
        self.risk.budget.give_back(self)

    def prepare(self) -> Trial:
        """Choose the path and the size of the pieces, once; again with smaller pieces where memory runs out.

        Ranks do so together at first, and each by itself later, when one of them may run out of memory alone.
        """
        if self._trial is None:
            group = self.risk.group if self._least_room is None else None
            with in_step(self.risk.theta, group), quiet():
                self.within_memory(self._choose)
            if self._least_room is None:
                self._least_room = smallest_over_ranks(self._own_room(), self.risk.device, group)
        assert self._trial is not None
        return self._trial

    def _choose(self) -> None:
        batch = first = next(iter(self._batches))
        known: Trial | None = self.risk.choices.get(self.curvature.name)
        contribution: Contribution | None = None
        if known is None or known.path not in self.paths:
            batch = first.first(self._examples_on_trial(len(first))) if self.risk.separable else first
            batch = batch.first(self._examples_that_fit(batch))
            known, contribution = try_paths(self.risk, self.curvature, batch, self.paths)
            self.risk.choices[self.curvature.name] = known
        self._trial = known
        self._batches = self._regrouped(self._examples_in_a_pass(len(first)), len(first))
        if contribution is not None and self._batches is self.risk.batches and len(batch) == len(first):
            self._check_terms(batch, contribution.linearized.z)
            self._keep(0, contribution, known.graph_bytes(len(first)))

    def _examples_on_trial(self, given: int) -> int:
        """How many examples the trial takes: few, and at most half a batch if θ is large, as vectors take room too."""
        half = (given + 1) // 2 if self.risk.theta.nbytes >= LARGE_BYTES else given
        return min(TRIAL_EXAMPLES, half, self._most or given)

    def _tangent_numerics(self, precision: Precision | None) -> contextlib.AbstractContextManager[None]:
        return self.risk.numerics(precision or self.risk.tangent_precision, search=self._num_products > SEARCH_AFTER)

    def _most_columns(self, trial: Trial) -> int:
        graph_bytes = trial.graph_bytes(len(next(iter(self._batches))))
        return columns_for(self.risk.device, graph_bytes, self.risk.theta.nbytes)

    def _examples_that_fit(self, batch: Batch) -> int:
        """How many examples main memory holds; a GPU raises an error beyond, but here the process would be killed."""
        if self.risk.device.type != "cpu" or not self.risk.separable or len(batch) == 1:
            return len(batch)
        with self.risk.numerics():
            bytes_each = ReverseMode(self.risk, batch.first(1), 1).kept_bytes()
        fitting = int(free_memory(self.risk.device) / (2 * HEADROOM * max(bytes_each, 1)))
        return max(1, min(len(batch), fitting))

    def _examples_in_a_pass(self, given: int) -> int:
        """How many examples go into a pass: enough to keep the device busy, at least a batch, and what fits at most."""
        if not self.risk.separable or self._trial is None:
            return given
        each = max(self._trial.example_bytes, 1.0)
        joined = max(1, int(pass_bytes(self.risk.device, self.risk.budget.total) / each // given)) * given
        fitting = int((free_memory(self.risk.device) / HEADROOM - self._trial.fixed_bytes) / each)
        return max(1, min(joined, fitting, self._most or joined))

    def _regrouped(self, size: int, given: int) -> Batches:
        """The data with this many examples in a pass, if that changes no result."""
        held = self.risk.batches.held or []
        if size == given or (size > given and len(held) < 2):  # what is one already, or is read anew, is not joined
            return self.risk.batches
        if AS_GIVEN in self.risk.choices:
            return self.risk.batches
        key = f"{self.curvature.name}, {size} examples"
        if key not in self.risk.choices:
            self.risk.choices[key] = self._is_same_in_pieces(size)
        return self.risk.batches.regrouped(size) if self.risk.choices[key] else self.risk.batches

    def _is_same_in_pieces(self, size: int) -> bool:
        """Whether a whole product over the first examples is the same in the user's batches and in pieces of this size.

        Independence of the examples was tested on outputs; this tests the product itself. A GPU rounds otherwise in
        batches of another size, and at a kink, where a ReLU is on or off, that changes more than the last digits: then
        the product may differ as it does where θ itself is rounded otherwise.
        """
        batches = self.risk.batches.first(size)
        pieces = batches.regrouped(size) if size > len(next(iter(batches))) else batches.regrouped((size + 1) // 2)
        scale, difference = self._apart(batches, self.risk, pieces)
        if difference <= tolerance(self.risk.dtype) * scale:
            return True
        of_rounding = self._apart(batches, self.risk.rounded_otherwise(), batches)[1]
        return difference <= min(KINKS * of_rounding, MOST_OF_KINKS * scale)

    def _apart(self, batches: Batches, other: Risk, others: Batches) -> tuple[float, float]:
        """The norm of a product over batches, and that of its difference from the other risk's over other ones."""
        total, v = torch.zeros_like(self.risk.theta)[None], random_row(self.risk, 1)
        with self.risk.numerics():
            for batch in batches:
                self._build(batch, self.risk, kept=False).finish(v, total)
            scale = norm(total)
            v.neg_()
            for batch in others:
                self._build(batch, other, kept=False).finish(v, total)
        return scale, norm(total)

    def _take_as_given(self) -> None:
        """Go on with the user's batches, neither joined nor cut."""
        self.drop()
        self._batches, self._most = self.risk.batches, None
        self.risk.choices[AS_GIVEN] = True

    def _later_paths(self) -> tuple[Path, ...]:
        names = [path.name for path in self.paths]
        return self.paths[names.index(self.prepare().path.name) + 1 :]

    def _take_next_path(self) -> None:
        """Go on with the paths behind this one, of which PyTorch may have the derivative right."""
        self.paths = self._later_paths()
        self.drop()
        self._trial = None

    def _check_terms(self, batch: Batch, z: Tensor) -> None:
        """Check that the terms of a pass that is linearised are those of the first evaluation."""
        with self.risk.numerics(), torch.no_grad():
            if self._batches is self.risk.batches:
                self.risk.check_terms(z, batch)
            elif not self.risk.has_terms(z, batch):
                raise ExamplesMeet

    def _map(self, number: int, batch: Batch, trial: Trial) -> Contribution:
        contribution = self._build(batch, self.risk)
        self._check_terms(batch, contribution.linearized.z)
        contribution.kept = trial.path.keeps and self._keep(number, contribution, trial.graph_bytes(len(batch)))
        return contribution

    def _build(self, batch: Batch, risk: Risk, *, kept: bool = True) -> Contribution:
        assert self._trial is not None
        with risk.numerics():
            linearized = self._linearized(self._trial.path, risk, batch)
            return Contribution(linearized, self.curvature.contribution(linearized), kept)

    def _linearized(self, path: Path, risk: Risk, batch: Batch) -> Linearized:
        """A batch linearised by the chosen path; by PyTorch alone if it takes a way through the model without rules."""
        try:
            return path.linearize(risk, batch, self.curvature.order)
        except DoesNotApply:
            reference = next((path for path in self.paths if path.reference), None)
            if reference is None:
                raise
            return reference.linearize(risk, batch, self.curvature.order)

    def _keep(self, number: int, contribution: Contribution, size: float) -> bool:
        fits = free_memory(self.risk.device) >= size and self.risk.budget.take(self, size)
        if fits:
            self._maps[number] = contribution
        return fits

    def _relent(self, message: str) -> None:
        """Use less memory: drop everything kept, then halve the columns, then the batches; at last raise an error."""
        forget_unused(self.risk.device)
        if self.risk.budget.shrink():
            return
        halved = [columns.halve() for columns in self._columns.values()]  # all of them, then look
        if any(halved):
            return
        largest = max(len(batch) for batch in self._batches) if self._most is None else self._most
        if self.risk.separable and largest > 1 and AS_GIVEN not in self.risk.choices:
            self._most, self._trial = largest // 2, None
            return
        raise OutOfMemoryError(
            f"A product with {largest} example{'s' if largest > 1 else ''} does not fit into memory: {message}",
            f"{free_memory(self.risk.device) / 2**30:.3g} GiB are free on {self.risk.device}; θ alone takes "
            f"{self.risk.theta.nbytes / 2**30:.3g}. Nothing is cached any more, and vectors are already multiplied one "
            "at a time.",
            "Free memory that other objects hold, or use a device with more memory.",
            "Analyse part of the network: Risk(..., parameters=...).",
            "Trade time for memory inside the model: torch.utils.checkpoint.checkpoint(..., use_reentrant=False).",
        )
