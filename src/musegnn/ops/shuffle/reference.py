"""Fisher and Yates' shuffle. Slow, obvious."""

import numpy as np
from jaxtyping import Integer

from musegnn.ops.random_bits.reference import below, bits_at


def shuffle(ids: Integer[np.ndarray, " n"], key: int) -> None:
    """See `musegnn.ops.shuffle`."""
    for i in range(len(ids) - 1, 0, -1):
        j = below(bits_at(key, i), i + 1)
        ids[i], ids[j] = ids[j], ids[i]
