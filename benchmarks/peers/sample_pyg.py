"""PyG's NeighborLoader with induced subgraphs. Run by `benchmarks/sampling.py`.

Another operator than ShadowKHop: only the newest nodes draw neighbors at a hop, so its samples are smaller.
"""

import warnings

import torch
from serve import BATCH_SIZE, read_arguments, serve
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_sparse import SparseTensor

warnings.filterwarnings("ignore")
indptr, indices, seeds = (torch.from_numpy(array) for array in read_arguments())
num_nodes = len(indptr) - 1
adjacency = SparseTensor(
    rowptr=indptr, col=indices.long(), sparse_sizes=(num_nodes, num_nodes), is_sorted=True, trust_data=True
)
data = Data(adj_t=adjacency, num_nodes=num_nodes)


def loader(fanouts, num_workers):
    return NeighborLoader(
        data,
        fanouts,
        input_nodes=seeds,
        batch_size=BATCH_SIZE,
        subgraph_type="induced",
        num_workers=num_workers,
    )


def size(batch):
    return batch.num_nodes, batch.adj_t.nnz() if "adj_t" in batch else batch.edge_index.shape[1]


if __name__ == "__main__":
    serve(loader, size)
