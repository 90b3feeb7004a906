"""Every Triton kernel becomes machine code for a GPU, on a machine that has none.

The interpreter runs kernels as Python, which takes much that a compiler refuses. Here a launch compiles what
it would launch, with the types that it is given, for compute capability 9.0 (H100, H200), in `make proof`
also for 8.0 (A100) and for more widths.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

_COMPILER = """
import itertools, json, os
import numpy as np, torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from triton.runtime.jit import JITFunction

from musegnn.ops import Clip, Rho
from musegnn.ops.descend import triton as descend
from musegnn.ops.move_means import triton as move_means
from musegnn.ops.reweigh import triton as reweigh
from musegnn.ops.settle import triton as settle

TYPES = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.int32: "i32",
         torch.int64: "i64", torch.uint8: "u8", int: "i32", float: "fp32"}
IS_PROOF = bool(os.environ.get("MUSEGNN_PROOF"))
made = {}

def compiled(kernel, *args, grid, warmup=False, num_warps=4, **named):
    given = dict(zip(kernel.arg_names, args)) | named
    constants = {p.name: given[p.name] for p in kernel.params if p.is_constexpr}
    kinds = {name: TYPES.get(getattr(value, "dtype", type(value))) for name, value in given.items()}
    pointers = {name: "*" * isinstance(value, torch.Tensor) for name, value in given.items()}
    signature = {
        name: "constexpr" if name in constants else pointers[name] + kind for name, kind in kinds.items()
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    name = kernel.fn.__module__.split(".")[-2] + "." + kernel.fn.__name__
    for capability in (90, 80)[: 1 + IS_PROOF]:
        code = compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": num_warps})
        made[name] = made.get(name, 0) + bool(len(code.asm["cubin"]))

JITFunction.run = compiled

# Rows that are cut, so that both kernels of a pair are launched.
n, hub = 400, descend.PIECE + 3
indptr = np.concatenate([[0], np.full(n, hub)]).astype(np.int64)
csr = descend.cut_rows(indptr, np.arange(hub, dtype=np.int32) % n)
dims = (300, 256, 8, 1) if IS_PROOF else (300,)
for dim, dtype in itertools.product(dims, (torch.float32, torch.float64, torch.bfloat16)):
    exact = torch.promote_types(dtype, torch.float32)
    rows = lambda: torch.zeros(n, dim, dtype=dtype)
    column, mask = torch.ones(n, dtype=exact), torch.zeros(n, -(-dim // 8), dtype=torch.uint8)
    step = descend.Coefficients(*[column] * 4)
    levels = descend.Levels(torch.zeros(n, dtype=torch.uint8), 1)
    # Each option both ways, not all combinations.
    for clip, some, level in ((Clip(), None, None), (Clip(0.1, -1.0, 1.0), mask, levels)):
        descend.descend(csr, step, rows(), rows(), clip, rows(), some, level)
        descend.pull_back(csr, step, rows(), some, rows(), rows(), level)
        weight, R, scale = torch.ones(hub, dtype=exact), rows()[None], torch.ones(1, dim, dtype=exact)
        B = None if some is None else rows()
        settle.settle(csr, weight, rows(), R, scale, column, column, rows(), B, clip, rows())
    settle.spread(csr, weight, rows(), rows())
    descend.propagate(csr, rows(), rows())
    descend.cut(rows(), mask)
    for rho in (Rho(-2.0, scale=0.5), Rho(2.0, 1.0, 0.5)) if dim == 8 or not IS_PROOF else (Rho(-2.0),):
        reweigh.reweigh(csr, rows(), rho, rows())
        for frozen in (False, True):
            reweigh.reweigh_back(csr, rows(), rows(), rho, rows(), frozen=frozen)
    count, ids = torch.zeros(n, dtype=torch.int32), torch.arange(3)
    move_means.move_means(rows(), count, ids, rows()[:3], 0.9)
print(json.dumps(made))
"""


def test_all_kernels_are_compiled_for_gpus(tmp_path):
    env = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _COMPILER], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    launched = {"descend._rows", "descend._hubs", "descend._cut", "settle._rows", "settle._hubs"}
    assert set(made) == launched | {"reweigh._rows", "reweigh._hubs", "move_means._move"}
    assert min(made.values()) >= 3
