"""Whatever is a subgraph, as a `Sample`: a stored one, a whole graph, or PyG's `edge_index`."""

from collections.abc import MutableMapping
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from musegnn import ops
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.record import Sample

_whole: "WeakKeyDictionary[Graph, Sample]" = WeakKeyDictionary()
_edges: MutableMapping[Tensor, tuple[tuple[int, int], Sample]] = WeakTensorKeyDictionary()


def as_sample(given: "Sample | Graph | Tensor", num_rows: int) -> Sample:
    """A subgraph with as many nodes as there are rows."""
    if isinstance(given, Sample):
        sample = given
    elif isinstance(given, Graph):
        sample = _whole_graph(given)
    elif isinstance(given, Tensor):
        sample = _cached_edges(given, num_rows)
    else:
        raise InputError(
            f"A subgraph is a musegnn.Sample, a musegnn.Graph or an edge_index tensor, "
            f"got {type(given).__name__}."
        )
    if sample.num_nodes != num_rows:
        raise InputError(
            f"The subgraph has {sample.num_nodes:,} nodes, but there are {num_rows:,} rows. "
            "Pass a row for each node."
        )
    return sample


def from_edge_index(edge_index: Tensor, num_nodes: int) -> Sample:
    """Edges as PyG has them, both directions of each; loops are left out and repeats merged."""
    edges = edge_index.detach().cpu().numpy()
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise InputError(
            f"edge_index must have shape (2, edges) and hold node ids, got {edges.dtype}{edges.shape}."
        )
    if edges.size and not (0 <= edges.min() and edges.max() < num_nodes):
        raise InputError(
            f"edge_index has nodes from {edges.min()} to {edges.max()}, but there are {num_nodes:,} rows: "
            f"ids must lie in 0..{num_nodes - 1}."
        )
    source, target = edges.astype(np.int64)
    both = np.unique((source << 32 | target)[source != target])
    back = np.unique((target << 32 | source)[source != target])
    if not np.array_equal(both, back):
        raise InputError(
            "edge_index is not symmetric, so that it has no energy. "
            "Pass each edge in both directions (torch_geometric.utils.to_undirected)."
        )
    lengths = np.bincount(both >> 32, minlength=num_nodes)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return _sample(indptr, (both & 0xFFFFFFFF).astype(np.int32))


def _cached_edges(edge_index: Tensor, num_nodes: int) -> Sample:
    """A layer gets the same `edge_index` in each epoch; it is sorted once, as long as nobody writes to it."""
    if edge_index.is_inference():
        # Such a tensor does not count who writes to it.
        return from_edge_index(edge_index, num_nodes)
    key = (num_nodes, edge_index._version)
    if edge_index not in _edges or _edges[edge_index][0] != key:
        _edges[edge_index] = key, from_edge_index(edge_index, num_nodes)
    return _edges[edge_index][1]


def _whole_graph(graph: Graph) -> Sample:
    if graph not in _whole:
        if graph.num_nodes > np.iinfo(np.int32).max:
            raise InputError(
                f"{graph.name} has {graph.num_nodes:,} nodes, too many for one step. Draw samples."
            )
        _whole[graph] = _sample(graph.indptr, graph.indices, graph.relation)
    return _whole[graph]


def _sample(indptr: np.ndarray, indices: np.ndarray, relation: np.ndarray | None = None) -> Sample:
    n = len(indptr) - 1
    return Sample(
        node_ids=np.arange(n, dtype=np.int32),
        indptr=indptr,
        indices=indices,
        num_seeds=n,
        bounds=ops.spectral_bounds(indptr, indices),
        relation=relation,
    )
