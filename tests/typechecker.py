"""The checker behind jaxtyping's shape checks: beartype, for which an int is also a float, as for mypy."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
