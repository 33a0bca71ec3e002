"""Progress bars of long loops, in a terminal or notebook; silence everywhere else.

    with progress.bar("Lanczos", total=num_steps) as bar:
        for step in range(num_steps):
            ...
            bar.advance(products=8, residual=1e-3)

A bar appears only when its work has lasted a second, writes to standard error alone, and leaves nothing behind.
Bars nest. `with progress.show_bars(False):` silences all bars of a block, `show_bars(True)` insists on them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_PATIENCE = 1.0  # seconds of work before a bar appears: shorter ones would only flicker
_INTERVAL = 0.1  # seconds between two drawings, so that a tight loop pays only for reading the clock

_wish: ContextVar[bool | None] = ContextVar("ritz_progress_wish", default=None)
_innermost: ContextVar[Bar | None] = ContextVar("ritz_progress_innermost", default=None)


@contextmanager
def show_bars(wish: bool) -> Iterator[None]:
    """Show (or silence) every bar opened inside the block, wherever standard error goes."""
    token = _wish.set(wish)
    try:
        yield
    finally:
        _wish.reset(token)


@contextmanager
def bar(label: str, *, total: int | None = None) -> Iterator[Bar]:
    """A progress bar over `total` steps; without a total it shows that time passes, not how much is left."""
    outer = _innermost.get()
    while outer is not None and outer.closed:  # left behind by a generator that ended out of order
        outer = outer.outer
    opened = Bar(label, total, outer, visible=_visible())
    _innermost.set(opened)
    try:
        yield opened
    finally:
        opened.close()
        _innermost.set(outer)


class Bar:
    """One loop's steps and the latest facts about it."""

    def __init__(self, label: str, total: int | None, outer: Bar | None, *, visible: bool) -> None:
        self.label, self.total, self.outer = label, total, outer
        self.done, self.closed, self.facts = 0, False, dict[str, Any]()
        self._started = monotonic()
        self._due = self._started + _PATIENCE if visible else float("inf")
        self._screen: _Screen = outer._screen if outer is not None else _Screen()
        self._task: TaskID | None = None

    def advance(self, steps: int = 1, **facts: Any) -> None:
        """Count `steps` more, and note `facts` such as products=12 or residual=1e-3.

        Facts may be tensors on any device: they are read only when they are drawn, ten times a second at most.
        """
        self.done += steps
        self.facts.update(facts)
        if monotonic() >= self._due:
            self._draw()

    def close(self) -> None:
        """Take the bar away; the outermost one takes the display with it."""
        self.closed = True
        self._due = float("inf")
        if self._task is not None:
            self._screen.remove(self._task)
        if self.outer is None:
            self._screen.stop()

    def _draw(self) -> None:
        if self.outer is not None and monotonic() >= self.outer._due:
            self.outer._draw()  # it has been running for longer than this one, though it has not advanced
        self._due = monotonic() + _INTERVAL
        status = " · ".join(
            [self._clock(), *(f"{name.replace('_', ' ')} {_fact(x)}" for name, x in self.facts.items())]
        )
        self._task = self._screen.update(self._task, self.label, self.done, self.total, status)

    def _clock(self) -> str:
        elapsed = monotonic() - self._started
        if self.total is None or not 0 < self.done <= self.total:
            return duration(elapsed)
        return f"{duration(elapsed * (self.total - self.done) / self.done)} left"


class _Screen:
    """The rich display that nested bars share, started by the first of them that is drawn."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def update(self, task: TaskID | None, label: str, done: int, total: int | None, status: str) -> TaskID | None:
        with suppress(OSError, ValueError):  # a terminal that went away must not end the computation
            if self._progress is None:
                self._progress = _rich_progress()
                self._progress.start()
            count = f"{done}/{total}" if total is not None else str(done)
            if task is None:
                return self._progress.add_task(label, completed=done, total=total, count=count, status=status)
            self._progress.update(task, completed=done, count=count, status=status, refresh=True)
        return task

    def remove(self, task: TaskID) -> None:
        if self._progress is not None:
            self._progress.remove_task(task)

    def stop(self) -> None:
        if self._progress is not None:
            with suppress(OSError, ValueError):
                self._progress.stop()
            self._progress = None


def _rich_progress() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}", markup=False),
        TextColumn("{task.fields[status]}", markup=False, style="dim"),
    )
    # In a terminal rich must lift what others print above the bars, or erase it with them; a pipe it must not touch.
    return Progress(
        *columns,
        console=_console(),
        auto_refresh=False,  # so no thread: data loaders fork
        transient=True,
        redirect_stdout=_is_terminal(sys.stdout),
        redirect_stderr=_is_terminal(sys.stderr),
    )


def _console() -> Console:
    from rich.console import Console

    class Unbreakable(Console):
        """Standard error, where a closed pipe ends the drawing instead of the program."""

        def on_broken_pipe(self) -> None:
            self.quiet = True

    return Unbreakable(stderr=True)


def _visible() -> bool:
    wish = _wish.get()
    return wish if wish is not None else _is_terminal(sys.stderr) or _in_notebook()


def _is_terminal(stream: Any) -> bool:
    with suppress(ValueError):  # closed, as daemons do; None under pythonw
        return stream is not None and stream.isatty()
    return False


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel in which rich can draw: without ipywidgets it would only print a warning."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell" and find_spec("ipywidgets") is not None


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(7), duration(65), duration(7800)
    ('7 s', '1 min 05 s', '2 h 10 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _fact(value: Any) -> str:
    number = value.item() if hasattr(value, "item") else value
    return f"{number:.3g}" if isinstance(number, float) else str(number)
