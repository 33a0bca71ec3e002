import pytest

from ritz.papers.frame.figure import Context
from tests.papers.singh2026.records import record_of


@pytest.fixture(scope="package")
def shelf(tmp_path_factory):
    """Where all tests of this folder keep their trained networks."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="package")
def computed(shelf, tmp_path_factory):
    """The record of each computation at preset "smoke", computed when it is first asked for."""
    kept = {}

    def of(figure):
        if figure.shared not in kept:
            context = Context(folder=tmp_path_factory.mktemp("cache"), shelf=shelf)
            kept[figure.shared] = figure.run(figure.presets["smoke"], context)
        return record_of(figure, kept[figure.shared])

    return of
