"""Fisher and Yates' shuffle."""

from typing import no_type_check

import numpy as np
from jaxtyping import Integer

from musegnn.ops.kernel import kernel
from musegnn.ops.random_bits.numba import below, bits_at


def shuffle(ids: Integer[np.ndarray, " n"], key: int) -> None:
    """See `musegnn.ops.shuffle`."""
    _shuffle(ids, np.uint64(key))


@kernel
@no_type_check
def _shuffle(ids, key):
    for i in range(len(ids) - 1, 0, -1):
        j = below(bits_at(key, np.uint64(i)), np.uint64(i + 1))
        ids[i], ids[j] = ids[j], ids[i]
