"""Numeric kernels: arrays in, arrays out. Each has a slow, obvious `reference.py` that its tests trust.

An entry of a symmetric matrix is one key, `row << 32 | column`, so that sorting keys sorts a CSR matrix.
Random numbers are counted, not drawn in turn: `bits(key, counter)` is a function (`random_bits`), and a
kernel gives each node a stream of its own, `bits(key, node)`. So no result depends on the order of work.
"""

import numpy as np
from jaxtyping import Float, Float64, Int32, Int64, Integer, UInt, UInt8, UInt32, UInt64

# A subpackage becomes an attribute of this one when it is imported; the function of its name must come later.
import musegnn.ops.descend.reference
import musegnn.ops.dropout.reference
import musegnn.ops.hops.reference
import musegnn.ops.induce_subgraph.reference
import musegnn.ops.local_ids.reference
import musegnn.ops.merge_entries.reference
import musegnn.ops.pagerank.reference
import musegnn.ops.partition_edges.reference
import musegnn.ops.random_bits.reference
import musegnn.ops.random_walk.reference
import musegnn.ops.reach.reference
import musegnn.ops.relate.reference
import musegnn.ops.reweigh.reference
import musegnn.ops.sample_neighbors.reference
import musegnn.ops.settle.reference
import musegnn.ops.shuffle.reference
import musegnn.ops.spectral_bounds.reference  # noqa: F401
from musegnn.ops.calls import Ids, Indices, Indptr, plain, version
from musegnn.ops.descend.plan import Clip as Clip
from musegnn.ops.descend.plan import Step as Step
from musegnn.ops.descend.plan import num_bytes as num_bytes
from musegnn.ops.reweigh.rho import Rho as Rho
from musegnn.ops.steps import cut as cut
from musegnn.ops.steps import descend as descend
from musegnn.ops.steps import propagate as propagate
from musegnn.ops.steps import propagate_weighed as propagate_weighed
from musegnn.ops.steps import pull_back as pull_back
from musegnn.ops.steps import reweigh as reweigh
from musegnn.ops.steps import reweigh_back as reweigh_back
from musegnn.ops.steps import settle as settle
from musegnn.ops.steps import spread as spread

MAX_NODES = 1 << 32
"""Row and column share a 64-bit key."""

SMALL = 1 << 22
"""Up to this many entries in all, the reference needs less time than loading a compiled kernel."""


def partition_edges(
    source: Int64[np.ndarray, " edges"],
    target: Int64[np.ndarray, " edges"],
    code: UInt32[np.ndarray, " edges"] | None,
    *,
    shift: int,
    num_buckets: int,
    compiled: bool = True,
) -> tuple[
    UInt64[np.ndarray, " entries"], UInt32[np.ndarray, " entries"] | None, Int64[np.ndarray, " bounds"]
]:
    """Both directions of each edge that is no loop, as keys grouped by the bucket of their row.

        (u, v), code c  ->  u << 32 | v, c   and   v << 32 | u, reverse(c)

    Bucket b holds the rows with `row >> shift == b`; its keys are `keys[bounds[b] : bounds[b + 1]]`.
    `reverse` swaps the two bits of each pair (see `musegnn.graph.relation`).
    """
    op = version("partition_edges", compiled)
    return op.partition_edges(source, target, code, shift=shift, num_buckets=num_buckets)  # type: ignore[no-any-return]


def merge_entries(
    keys: UInt64[np.ndarray, " entries"],
    codes: UInt32[np.ndarray, " entries"] | None,
    first_row: int,
    num_rows: int,
    *,
    compiled: bool = True,
) -> tuple[Int64[np.ndarray, " rows"], UInt32[np.ndarray, " merged"], UInt32[np.ndarray, " merged"] | None]:
    """One block of CSR rows from unordered entries: row lengths, sorted columns without repeats, codes.

    The codes of repeated entries are joined by bitwise or.
    """
    return version("merge_entries", compiled).merge_entries(keys, codes, first_row, num_rows)  # type: ignore[no-any-return]


def random_bits(
    key: int, counters: UInt64[np.ndarray, " n"], *, compiled: bool = True
) -> UInt64[np.ndarray, " n"]:
    """The numbers at these places of the stream `key`: SplitMix64, each computed without the others.

    bits(key, c) = mix(key + (c + 1) * 0x9E3779B97F4A7C15)   mod 2**64
    """
    return version("random_bits", compiled).random_bits(key, counters)  # type: ignore[no-any-return]


def shuffle(ids: Ids, key: int, *, compiled: bool = True) -> None:
    """Put ids into a random order, in place: every order has the same chance."""
    version("shuffle", compiled).shuffle(ids, key)


def sample_neighbors(
    indptr: Indptr, indices: Indices, nodes: Ids, fanout: int | None, key: int, *, compiled: bool = True
) -> Integer[np.ndarray, "2 drawn"]:
    """For each node `fanout` neighbors without replacement; all if it has no more, or if fanout is None.

    The pairs (node, neighbor), the nodes in their order. Every subset of the neighbors has the same chance.
    """
    op = version("sample_neighbors", compiled)
    return op.sample_neighbors(plain(indptr), plain(indices), plain(nodes), fanout, key)  # type: ignore[no-any-return]


def reach(
    indptr: Indptr, indices: Indices, nodes: Ids, fanout: int | None, key: int, *, compiled: bool = True
) -> Integer[np.ndarray, " reached"]:
    """One hop: the nodes and the neighbors that `sample_neighbors` draws for them, ascending, each once."""
    return version("reach", compiled).reach(plain(indptr), plain(indices), plain(nodes), fanout, key)  # type: ignore[no-any-return]


def random_walk(
    indptr: Indptr, indices: Indices, roots: int, length: int, key: int, *, compiled: bool = True
) -> Integer[np.ndarray, " visited"]:
    """The nodes that `roots` walks of `length` steps visit, ascending, each once.

        node 0 of walk w     uniform among all nodes, by bits(bits(key, w), 0)
        node t of walk w     uniform among the neighbors of node t - 1, by bits(bits(key, w), t)

    A walk stays at a node without neighbors.
    """
    op = version("random_walk", compiled)
    return op.random_walk(plain(indptr), plain(indices), roots, length, key)  # type: ignore[no-any-return]


def pagerank(
    indptr: Indptr,
    indices: Indices,
    seeds: Ids,
    top_k: int,
    teleport: float,
    tolerance: float,
    *,
    compiled: bool = True,
) -> Integer[np.ndarray, " chosen"]:
    """The seeds, and for each the `top_k` nodes of largest approximate personalized PageRank, ascending.

        pi_s = teleport (I - (1 - teleport) P^T)^-1 e_s,   P = D^-1 A    (an isolated seed: e_s)
        push u:  p_u += teleport r_u,   r_v += (1 - teleport) r_u / d_u for each neighbor v,   r_u = 0

    From p = 0, r = e_s, nodes are pushed, first come, first served, until r_u < tolerance d_u for all u. A
    push keeps p + sum_v r_v pi_v = pi_s, and d_v pi_v(u) = d_u pi_u(v): 0 <= pi_s(u) - p_u < tolerance d_u.
    Nodes with p = 0 are left out; of equal ones those with smaller ids are taken. The numbers are float64
    and added in a fixed order: every machine chooses the same nodes. Pushes for a seed read at most
    1 / (teleport tolerance) entries, and memory is taken for the nodes read, however large the graph is.
    """
    op = version("pagerank", compiled)
    return op.pagerank(plain(indptr), plain(indices), plain(seeds), top_k, teleport, tolerance)  # type: ignore[no-any-return]


def induce_subgraph(
    indptr: Indptr, indices: Indices, node_ids: Ids, num_seeds: int, *, compiled: bool = True
) -> tuple[Int64[np.ndarray, " n_plus_1"], Int32[np.ndarray, " kept"]]:
    """All edges among `node_ids`, as CSR in local ids (positions in `node_ids`), columns ascending in a row.

    The first `num_seeds` ids ascend, and so do those behind them; none repeats.
    """
    op = version("induce_subgraph", compiled)
    return op.induce_subgraph(plain(indptr), plain(indices), plain(node_ids), num_seeds)  # type: ignore[no-any-return]


def hops(
    indptr: Indptr, indices: Indices, num_seeds: int, *, compiled: bool = True
) -> UInt8[np.ndarray, " nodes"]:
    """How many edges each node is away from the nearest of the first `num_seeds`; 255 if as many or more."""
    return version("hops", compiled).hops(plain(indptr), plain(indices), num_seeds)  # type: ignore[no-any-return]


def local_ids(
    node_ids: Ids, ids: Integer[np.ndarray, " m"], num_nodes: int, *, compiled: bool = True
) -> Int64[np.ndarray, " m"]:
    """The position of each of `ids` in `node_ids`, which are distinct and hold them all."""
    return version("local_ids", compiled).local_ids(plain(node_ids), plain(ids), num_nodes)  # type: ignore[no-any-return]


def look_up_codes(
    indptr: Int64[np.ndarray, " graph_plus_1"],
    indices: Integer[np.ndarray, " graph_entries"],
    codes: UInt[np.ndarray, " graph_entries"],
    node_ids: Integer[np.ndarray, " nodes"],
    sample_indptr: Indptr,
    sample_indices: Indices,
    *,
    compiled: bool = True,
) -> UInt[np.ndarray, " entries"]:
    """The code that each entry of a subgraph has in the graph, of which it must be an entry."""
    graph = [plain(part) for part in (indptr, indices, codes)]
    sample = [plain(part) for part in (node_ids, sample_indptr, sample_indices)]
    return version("relate", compiled).look_up_codes(*graph, *sample)  # type: ignore[no-any-return]


def split_by_bit(
    indptr: Indptr, indices: Indices, codes: UInt[np.ndarray, " entries"], bit: int, *, compiled: bool = True
) -> tuple[Indptr, Integer[np.ndarray, " kept"]]:
    """The entries whose code has a bit, as a matrix of their own."""
    parts = [plain(part) for part in (indptr, indices, codes)]
    return version("relate", compiled).split_by_bit(*parts, bit)  # type: ignore[no-any-return]


def side_by_side(
    indptr: Int64[np.ndarray, " rows_plus_1"], indices: Indices, num_matrices: int, *, compiled: bool = True
) -> tuple[Indptr, Integer[np.ndarray, " entries"]]:
    """[B_0 B_1 ...] of matrices of n rows and columns each, that are given one below the other.

    Column j of B_t becomes column t n + j; the entries of a row stay in the order of the matrices.
    """
    return version("relate", compiled).side_by_side(plain(indptr), plain(indices), num_matrices)  # type: ignore[no-any-return]


def spectral_bounds(
    indptr: Indptr, indices: Int32[np.ndarray, " entries"], *, compiled: bool = True
) -> Float64[np.ndarray, "4"]:
    """theta <= lmax(L) <= bound of a subgraph's two Laplacians: the normalized, then the combinatorial.

    normalized:     L = I - D'^-1/2 (A + I) D'^-1/2, D' = D + I
                    theta = the Ritz value of 2 Lanczos steps from signs that oppose their neighbors
                    bound = 2 - 2 / (1 + max d), since D + A >= 0
    combinatorial:  L = D - A
                    theta = max d + 1 (0 without edges); the Ritz value of a hub and its neighbors is no less
                    bound = max over edges of d_u + d_v

    All four are 0 of a subgraph without nodes.
    """
    return version("spectral_bounds", compiled).spectral_bounds(plain(indptr), plain(indices))  # type: ignore[no-any-return]


def dropout(
    X: Float[np.ndarray, " n"],
    key: int,
    threshold: int,
    *,
    relu: bool,
    out: Float[np.ndarray, " n"],
    threads: int = 1,
    compiled: bool = True,
) -> None:
    """Set entries to 0 with probability p = threshold / 65536 and divide the others by 1 - p.

        out_i = [bits_i >= threshold] X_i / (1 - p),   with `relu` of max(X_i, 0) in place of X_i

    bits_i are 16 of the 64 bits at place i // 4 of the stream `key` (`random_bits`), so that the same key
    drops the same entries again.
    """
    version("dropout", compiled).dropout(X, key, threshold, relu=relu, out=out, threads=threads)


def is_cold() -> bool:
    """Whether no kernel has been compiled yet: the first call will then take seconds."""
    from musegnn.ops.kernel import is_cold

    return is_cold()
