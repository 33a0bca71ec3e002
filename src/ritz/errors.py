"""What ritz raises: every message says what was seen, why it is a problem, and the ways out."""


class RitzError(Exception):
    """An error with its remedy. `except ritz.RitzError` catches everything this library raises on purpose."""

    def __init__(self, seen: str, why: str, *ways_out: str) -> None:
        self.seen, self.why, self.ways_out = seen, why, ways_out
        super().__init__(seen, why, *ways_out)  # as given, so that an error survives pickling between processes

    def __str__(self) -> str:
        return "\n".join([self.seen, self.why, *(f"  - {way}" for way in self.ways_out)])


class DataError(RitzError):
    """The data cannot define a risk: empty, out of range, different at every pass, on another device."""


class ModelError(RitzError):
    """The model has no well-defined curvature here: random, half precision, in train mode, not differentiable twice."""


class ArgumentError(RitzError, ValueError):
    """An argument that no computation could satisfy, such as more eigenpairs than parameters."""


class NumericalError(RitzError, ArithmeticError):
    """The numbers themselves forbid the result: NaN, infinity, or a matrix that is not positive definite."""


class FileError(RitzError, OSError):
    """A file or folder that cannot be read or written."""


class ConvergenceWarning(UserWarning):
    """A result is less accurate than was asked for; its own residuals or errors say how accurate it is."""
