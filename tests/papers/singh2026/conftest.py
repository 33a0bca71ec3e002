import pytest

from ritz.papers.frame.figure import Context

from .records import record_of


@pytest.fixture(scope="package")
def computed(tmp_path_factory):
    """The record of each computation at preset "smoke", computed when it is first asked for."""
    kept = {}

    def of(figure):
        if figure.shared not in kept:
            kept[figure.shared] = figure.run(figure.presets["smoke"], Context(folder=tmp_path_factory.mktemp("cache")))
        return record_of(figure, kept[figure.shared])

    return of
