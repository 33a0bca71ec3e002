"""Bars: seen in a terminal, unheard elsewhere, and never in the way of the work."""

import io
import re
import sys
from contextlib import contextmanager, redirect_stderr

import pytest
import torch

from ritz import progress


class Terminal(io.StringIO):
    def isatty(self):
        return not super().isatty()  # which raises once it is closed

    def seen(self):
        """Everything that was drawn, without the control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())


@pytest.fixture
def impatient(monkeypatch):
    """Bars appear at once and are drawn at every step."""
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)


@contextmanager
def terminal():
    """Standard error as a terminal; a fixture could not do it, as pytest sets its own when the test begins."""
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(Terminal()) as screen:
        for name, value in {"TERM": "xterm-256color", "COLUMNS": "140", "LINES": "30"}.items():
            patch.setenv(name, value)
        yield screen


def work(steps=5, **facts):
    with progress.bar("Lanczos", total=steps) as bar:
        for _ in range(steps):
            bar.advance(**facts)


def test_nothing_is_printed_when_standard_error_is_no_terminal(impatient, capfd):
    work()
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_steps_facts_and_time_left(impatient):
    with terminal() as screen:
        work(products=12, largest_residual=torch.tensor(0.00125))
    for part in ("Lanczos", "5/5", "products 12", "largest residual 0.00125", "0 s left"):
        assert part in screen.seen()


def test_work_shorter_than_a_second_shows_nothing():
    with terminal() as screen:
        work()
    assert screen.getvalue() == ""


def test_standard_output_is_left_alone(impatient, capsys):
    with terminal(), progress.bar("Lanczos", total=1) as bar:
        bar.advance()
        print("the user's own line")
    assert capsys.readouterr().out == "the user's own line\n"


def test_nested_bars_share_one_display_and_the_outer_one_stands_first(impatient):
    with terminal() as screen, progress.bar("Layers", total=2) as outer:
        for _ in range(2):
            work()
            outer.advance()
    assert -1 < screen.seen().find("Layers") < screen.seen().find("Lanczos")
    assert screen.getvalue().count("\x1b[?25l") == 1  # the cursor is hidden once: one display


def test_a_silenced_block_is_silent_even_in_a_terminal(impatient):
    with terminal() as screen:
        with progress.show_bars(False):
            work()
        assert screen.getvalue() == ""
        work()
    assert "Lanczos" in screen.seen()


def test_bars_insisted_on_do_no_harm_in_a_pipe(impatient, capsys):
    with progress.show_bars(True):
        work()
    assert capsys.readouterr().out == ""


def test_an_interrupted_loop_gives_the_terminal_back(impatient):
    with terminal() as screen:
        with pytest.raises(KeyboardInterrupt), progress.bar("Lanczos", total=5) as bar:
            bar.advance()
            raise KeyboardInterrupt
        assert "\x1b[?25h" in screen.getvalue()  # the cursor is back
        assert sys.stderr is screen


def test_a_terminal_that_goes_away_does_not_end_the_work(impatient):
    with terminal() as screen, progress.bar("Lanczos", total=3) as bar:
        bar.advance()
        screen.close()
        bar.advance()
        bar.advance()
    assert bar.done == 3


def test_bars_of_generators_that_end_out_of_order_leave_nothing_behind(impatient):
    def training(label):
        with progress.bar(label, total=3) as bar:
            for _ in range(3):
                bar.advance()
                yield

    with terminal() as screen:
        first, second = training("first"), training("second")
        next(first), next(second)
        first.close(), second.close()
        work()
    assert "Lanczos" in screen.seen()
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h")


class Explosive:
    def item(self):
        raise AssertionError("a tensor on a device was read, which waits for the device")


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_missing_standard_error_is_no_terminal(impatient, stream):
    missing = Terminal() if stream else None
    if missing:
        missing.close()
    with redirect_stderr(missing):
        work(residual=Explosive())


def test_facts_are_not_read_while_nothing_is_drawn():
    work(residual=Explosive())


@pytest.mark.parametrize("seconds, text", [(7.4, "7 s"), (61, "1 min 01 s"), (3725, "1 h 02 min")])
def test_durations_are_readable(seconds, text):
    assert progress.duration(seconds) == text


def test_the_clock_of_an_outer_bar_goes_on_while_an_inner_one_works(impatient, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with terminal() as screen, progress.bar("outer", total=2) as outer, progress.bar("inner") as inner:
        for now[0] in (1.0, 30.0):
            inner.advance()
        assert outer.done == 0
    assert re.search(r"outer[^\n]* 30 s", screen.seen())
