"""DGL's ShaDowKHopSampler, the same operator as `musegnn.ShadowKHop`. Run by `benchmarks/sampling.py`."""

import warnings

import dgl
import torch
from serve import BATCH_SIZE, read_arguments, serve

warnings.filterwarnings("ignore")
indptr, indices, seeds = (torch.from_numpy(array) for array in read_arguments())
graphs = {}
# DGL's ids have 64 bits unless one asks for 32, which are faster.
for bits, dtype in ((32, torch.int32), (64, torch.int64)):
    csc = (indptr.to(dtype), indices.to(dtype), torch.empty(0, dtype=dtype))
    graphs[bits] = dgl.graph(("csc", csc), num_nodes=len(indptr) - 1)
    graphs[bits].create_formats_()


def loader(fanouts, num_workers, bits=32):
    # DGL lists the seeds' own hop last.
    sampler = dgl.dataloading.ShaDowKHopSampler(fanouts[::-1])
    return dgl.dataloading.DataLoader(
        graphs[bits],
        seeds.to(graphs[bits].idtype),
        sampler,
        batch_size=BATCH_SIZE,
        shuffle=False,
        num_workers=num_workers,
    )


if __name__ == "__main__":
    serve(loader, lambda batch: (batch[2].num_nodes(), batch[2].num_edges()))
