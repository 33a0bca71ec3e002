"""How annotations are checked while tests run: every shape and type of ritz, with whole numbers taken as real ones."""

from contextlib import contextmanager

import jaxtyping
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


@contextmanager
def unchecked():
    """As users run it: for hundreds of draws whose shapes a single one has shown to be right."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.jaxtyping_disable = True
    try:
        yield
    finally:
        jaxtyping.config.jaxtyping_disable = before
