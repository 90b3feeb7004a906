"""From and to the structures users come with: the arguments of `Graph.from_edges`, and back."""

from typing import TYPE_CHECKING, Any

import numpy as np

from musegnn.errors import InputError
from musegnn.extras import require
from musegnn.graph.checks import SPLITS, as_array

if TYPE_CHECKING:
    from networkx import Graph as NetworkXGraph
    from scipy.sparse import sparray, spmatrix
    from torch_geometric.data import Data

    from musegnn.graph.graph import Graph

_MASKS = dict(zip(("train_mask", "val_mask", "test_mask"), SPLITS, strict=True))


def from_pyg(data: "Data") -> dict[str, Any]:
    """`edge_index`, `x`, `y`, `edge_type`, `node_type` and the three masks of a PyG `Data`."""
    if getattr(data, "edge_index", None) is None:
        raise InputError("The PyG object has no edge_index. Pass a homogeneous torch_geometric.data.Data.")
    # Older files hold masks of 0 and 1 in uint8, which would be taken for node ids.
    split = {
        part: as_array(data[mask], mask).astype(bool)
        for mask, part in _MASKS.items()
        if data.get(mask) is not None
    }
    for part, mask in split.items():
        if mask.ndim != 1:
            raise InputError(
                f"The {part} mask has shape {mask.shape}: several splits. "
                "Choose one, as in data.train_mask[:, 0]."
            )
    node_type = data.get("node_type")
    return {
        "edge_index": data.edge_index,
        "num_nodes": data.num_nodes,
        "features": data.get("x"),
        "labels": data.get("y"),
        "split": split or None,
        "relation": data.get("edge_type"),
        "node_type": node_type,
        # What `HeteroData.to_homogeneous` leaves there.
        "node_type_names": None if node_type is None else getattr(data, "_node_type_names", None),
    }


def to_pyg(graph: "Graph") -> "Data":
    """A PyG `Data`: `edge_index` with both directions of each edge, `x`, `y`, `node_type` and the masks."""
    data_module = require("torch_geometric.data", "Graph.to_pyg")
    import torch

    rows = np.repeat(np.arange(graph.num_nodes, dtype=np.int64), np.diff(graph.indptr))
    edge_index = np.stack([rows, graph.indices.astype(np.int64)])
    data = data_module.Data(edge_index=torch.from_numpy(edge_index), num_nodes=graph.num_nodes)
    if graph.features is not None:
        data.x = torch.from_numpy(np.array(graph.features))
    if graph.labels is not None:
        data.y = torch.from_numpy(graph.labels.astype(np.int64))
    if graph.split is not None:
        for number, mask in enumerate(_MASKS):
            data[mask] = torch.from_numpy(np.asarray(graph.split == number))
    if graph.relation is not None:
        data.relation = torch.from_numpy(graph.relation.astype(np.int64))
    if graph.node_type is not None and graph.node_type_names is not None:
        data.node_type = torch.from_numpy(graph.node_type.astype(np.int64))
        data._node_type_names = list(graph.node_type_names)
    return data


def from_scipy(matrix: "sparray | spmatrix") -> dict[str, Any]:
    """The nonzero pattern of a square matrix; values are not kept."""
    import scipy.sparse

    entries = scipy.sparse.coo_array(matrix)
    if len(entries.shape) != 2 or entries.shape[0] != entries.shape[1]:
        raise InputError(
            f"The matrix must be square, got shape {entries.shape}. Pass a node-by-node adjacency."
        )
    return {"edge_index": np.stack(entries.nonzero()), "num_nodes": entries.shape[0]}


def from_networkx(graph: "NetworkXGraph[Any]") -> dict[str, Any]:
    """Edges of a NetworkX graph, directed or not, its nodes numbered in their order and named by `str`."""
    number = {node: i for i, node in enumerate(graph)}
    pairs = [(number[u], number[v]) for u, v in graph.edges()]
    edge_index = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return {
        "edge_index": edge_index,
        "num_nodes": len(number),
        "node_names": [str(node) for node in graph],
        "keep_direction": graph.is_directed(),
    }
