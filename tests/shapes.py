"""How annotations are checked while tests run: every shape and type of ritz, with whole numbers taken as real ones."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
