"""The data of the small problem, as the tests of the risk have them."""

from tests.risk.conftest import x, y  # noqa: F401
