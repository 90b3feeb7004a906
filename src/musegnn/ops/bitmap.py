"""Sets of nodes for kernels: a bit for each node of the graph, in words of 64.

Of a graph with n nodes a set takes n / 8 bytes, and n / 16 more once ranks are asked of it: 21 MB for 111
million nodes, where an array of local ids would take 444 MB and miss every cache.
"""

from typing import no_type_check

import numpy as np
from numba import types
from numba.extending import intrinsic

from musegnn.ops.kernel import kernel

_ONE = np.uint64(1)


@intrinsic
@no_type_check
def popcount(typing_context, word):
    """Number of bits set in a uint64."""
    return types.uint64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
@no_type_check
def trailing_zeros(typing_context, word):
    """Place of the lowest bit set in a uint64 that is not 0."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


@kernel
@no_type_check
def add(words, node):
    """Put a node into the set."""
    words[np.uint64(node) >> np.uint64(6)] |= _ONE << (np.uint64(node) & np.uint64(63))


@kernel
@no_type_check
def has(words, node):
    """1 if the node is in the set, else 0, as uint64."""
    return words[np.uint64(node) >> np.uint64(6)] >> (np.uint64(node) & np.uint64(63)) & _ONE


@kernel
@no_type_check
def bitmap(num_nodes, nodes):
    """The set of these nodes."""
    words = np.zeros((num_nodes + 63) >> 6, dtype=np.uint64)
    for node in nodes:
        add(words, node)
    return words


@kernel
@no_type_check
def members(words, dtype):
    """The nodes of the set, ascending."""
    count = np.uint64(0)
    for word in words:
        count += popcount(word)
    nodes = np.empty(count, dtype=dtype)
    k = 0
    for w in range(len(words)):
        word = words[w]
        while word != np.uint64(0):
            nodes[k] = (w << 6) + np.int64(trailing_zeros(word))
            word &= word - _ONE
            k += 1
    return nodes


@kernel
@no_type_check
def ranks(words):
    """How many members stand before each word."""
    before = np.empty(len(words), dtype=np.uint32)
    count = np.uint64(0)
    for w in range(len(words)):
        before[w] = count
        count += popcount(words[w])
    return before


@kernel
@no_type_check
def rank(words, before, node):
    """How many members are smaller than this node."""
    w = np.uint64(node) >> np.uint64(6)
    return np.uint64(before[w]) + popcount(words[w] & ((_ONE << (np.uint64(node) & np.uint64(63))) - _ONE))
