"""DGL's ShaDowKHopSampler, the same operator as `musegnn.ShadowKHop`. Run by `benchmarks/sampling.py`."""

import warnings

import dgl
import torch
from serve import BATCH_SIZE, read_arguments, serve

warnings.filterwarnings("ignore")
indptr, indices, seeds = (torch.from_numpy(array) for array in read_arguments())
# With ids of 32 bits DGL is a little faster than with its usual 64.
csc = (indptr.int(), indices, torch.empty(0, dtype=torch.int32))
graph = dgl.graph(("csc", csc), num_nodes=len(indptr) - 1)
graph.create_formats_()


def loader(fanouts, num_workers):
    # DGL lists the seeds' own hop last.
    sampler = dgl.dataloading.ShaDowKHopSampler(fanouts[::-1])
    return dgl.dataloading.DataLoader(
        graph, seeds.int(), sampler, batch_size=BATCH_SIZE, shuffle=False, num_workers=num_workers
    )


if __name__ == "__main__":
    serve(loader, lambda batch: (batch[2].num_nodes(), batch[2].num_edges()))
