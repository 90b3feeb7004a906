"""Typed energies in bfloat16: near to float64 forward and back, with bounds that hold for the rounded H."""

import numpy as np
import pytest
import torch

from musegnn import Graph, Predictive, Relational, unfold
from musegnn.unfolding.mixing import Factors, Mixings
from musegnn.unfolding.staged import Staged
from musegnn.unfolding.subgraph import as_sample

DIM, NODES, RELATIONS = 24, 320, 2
KINDS = {
    "row": lambda **how: Predictive(DIM, RELATIONS, average="row", **how),
    "symmetric": lambda **how: Predictive(DIM, RELATIONS, average="symmetric", **how),
    "normalized": lambda **how: Relational(DIM, RELATIONS, laplacian="normalized", **how),
    "combinatorial": lambda **how: Relational(DIM, RELATIONS, laplacian="combinatorial", **how),
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="GPU"))]
kinds = pytest.mark.parametrize("kind", KINDS)
ranks = pytest.mark.parametrize("rank", [None, 0, 4])
devices = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(scope="module")
def graph():
    """Two relations, and in each a hub of more neighbors than one program adds up: 128."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, NODES, (2, 4 * NODES))
    edges[0, :NODES], edges[1, :NODES] = 3, np.arange(NODES)
    edges = edges[:, edges[0] != edges[1]]
    relation = rng.integers(0, RELATIONS, edges.shape[1])
    assert np.bincount(relation[edges[0] == 3]).min() > 128
    return Graph.from_edges(edges, num_nodes=NODES, relation=relation, relation_names=["r0", "r1"])


def learned(kind, *, stages=1, seed=0, **how):
    """As if it had been trained, in float32."""
    made, parts = torch.Generator().manual_seed(seed), []
    for number in range(stages):
        torch.manual_seed(number)
        energy = KINDS[kind](**how)
        with torch.no_grad():
            for part in energy.parameters():
                part += 0.2 * torch.randn(part.shape, generator=made)
        parts.append(energy)
    return Staged(parts) if stages > 1 else parts[0]


def rows(seed, count=1):
    made = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(NODES, DIM, generator=made).bfloat16() for _ in range(count)]
    return drawn if count > 1 else drawn[0]


def apart(found, exact):
    """|found - exact| / |exact|."""
    return float((found.detach().double().cpu() - exact.detach().cpu()).norm() / exact.detach().norm())


def passed(graph, energy, dtype, device, **given):
    """Y, and the gradients of Z and all parameters."""
    energy = energy.to(device, torch.float64) if dtype == torch.float64 else energy.to(device)
    Z, G = rows(1).to(device, dtype).requires_grad_(), rows(2).to(device, dtype)
    given = {name: part.to(device, dtype) for name, part in given.items()}
    Y = unfold(Z, graph, energy, 6, **given)
    parameters = list(energy.parameters())
    return Y, torch.autograd.grad(Y, [Z, *parameters], G), parameters


def compare(graph, kind, device, slack=1, **how):
    given = how.pop("given", {})
    Y, found, parameters = passed(graph, learned(kind, **how), torch.bfloat16, device, **given)
    exact, expected, _ = passed(graph, learned(kind, **how), torch.float64, device, **given)
    assert Y.dtype == found[0].dtype == torch.bfloat16
    assert [part.dtype for part in found[1:]] == [part.dtype for part in parameters]
    assert apart(Y, exact) < slack * 6e-3
    assert apart(found[0], expected[0]) < slack * 1.5e-2
    for one, other in zip(found[1:], expected[1:], strict=True):
        if other.shape[-1] > 1:
            assert apart(one, other) < slack * 3e-2
    # A lambda's is a sum over all nodes, of either sign: that of one may be small beside what was rounded.
    few = [[one.flatten() for one in of if one.shape[-1] == 1] for of in (found, expected)]
    assert not few[0] or apart(*map(torch.cat, few)) < 0.1


@devices
@kinds
@ranks
@pytest.mark.parametrize("stages", [1, 3])
def test_forward_and_back(graph, kind, rank, stages, device):
    compare(graph, kind, device, rank=rank, stages=stages, prox="none")


@devices
@kinds
@pytest.mark.parametrize("acceleration", ["momentum", "chebyshev"])
def test_accelerated(graph, kind, acceleration, device):
    """Momentum adds up what was rounded."""
    compare(graph, kind, device, slack=4, acceleration=acceleration, prox="none")


@devices
@kinds
@pytest.mark.parametrize("lambda_per", ["graph", "channel"])
def test_means_and_shared_weights(graph, kind, lambda_per, device):
    compare(graph, kind, device, lambda_per=lambda_per, gamma=0.5, prox="none", given={"mu": rows(3)})


@devices
@kinds
@pytest.mark.parametrize("prox", ["relu", "l1", "group", "box"])
def test_penalties(graph, kind, prox, device):
    """A rounded entry may fall on the other side, where its derivative is another: Y alone is compared."""
    Y, found, _ = passed(graph, learned(kind, prox=prox), torch.bfloat16, device)
    exact, _, _ = passed(graph, learned(kind, prox=prox), torch.float64, device)
    assert apart(Y, exact) < 1e-2
    assert all(torch.isfinite(part).all() for part in found)


@devices
@kinds
@ranks
def test_rows_stay_in_bfloat16_and_step_sizes_do_not(graph, kind, rank, device):
    energy, Z = learned(kind, rank=rank, gamma=0.5).to(device), rows(1).to(device)
    problem = energy.on(as_sample(graph, NODES), Z, None, like=Z)
    assert problem.rows.dtype == problem.majorizer().dtype == torch.float32
    for part in (problem.half_gradient(Z, Z), problem.product(Z), problem.target(Z)):
        assert part.dtype == torch.bfloat16
    # H may have grown by rounding, and steps are the smaller for it.
    wide = energy.on(as_sample(graph, NODES), Z.float(), None, like=Z.float())
    assert (problem.rows < wide.rows).any()
    assert (problem.rows <= wide.rows).all()


@kinds
def test_the_error_bound_counts_what_was_rounded(graph, kind):
    """It is that of the energy as it was learned, not of the rounded one."""
    energy, Z = learned(kind, prox="relu"), rows(1)
    # Far enough for what was rounded to count.
    traced = unfold(Z, graph, energy, 60, trace=True)
    exact = learned(kind, prox="relu").double()
    with torch.no_grad():
        near = unfold(Z.double(), graph, exact, 200)
        nearest = unfold(Z.double(), graph, exact, 1, init=near, trace=True)
    distance = float((traced.Y.double() - nearest.Y).detach().norm())
    assert distance <= traced.error_bound + nearest.error_bound
    assert (traced.energies[2:].diff() < 1e-3 * traced.energies[1]).all()


@kinds
def test_what_is_watched_is_computed_in_float32(graph, kind):
    energy, Z = learned(kind), rows(1)
    with pytest.warns(UserWarning, match="alpha"):
        found = unfold(Z, graph, energy, 2, 1.05)
    with pytest.warns(UserWarning, match="alpha"):
        wide = unfold(Z.float(), graph, energy, 2, 1.05)
    assert torch.equal(found, wide.bfloat16())


@pytest.mark.parametrize("dim", [1, 5, 64])
@pytest.mark.parametrize("rank", [None, 0, 4])
def test_the_norm_of_a_rounded_matrix_is_below_its_bound(dim, rank):
    made = torch.Generator().manual_seed(dim)
    mixings = Mixings(8, dim, rank, 2.0)
    weight, eye = torch.rand(dim, generator=made) + 0.5, torch.eye(dim, dtype=torch.float64)
    with torch.no_grad():
        for part in mixings.parameters():
            part.copy_(torch.randn(part.shape, generator=made))
        factors, norms = mixings()
        bounds = norms + factors.growth(torch.bfloat16, weight.expand(8, -1))
        back = factors.transposed().weighed(weight.expand(8, -1)).to(torch.bfloat16).to(torch.float64)
        H = factors.to(torch.bfloat16).to(torch.float64)
        for matrices in (H.times(eye.expand(8, -1, -1)), back.dense() / weight.double()[:, None]):
            assert (torch.linalg.matrix_norm(matrices, 2) <= bounds).all()


def test_a_lambda_that_underflows_is_none(graph):
    energy, Z = Predictive(DIM, RELATIONS), rows(1)
    with torch.no_grad():
        energy.raw_lambda.fill_(-200)
    assert not energy.lambdas.any()
    torch.testing.assert_close(unfold(Z, graph, energy, 3), Z.clamp(min=0))


def test_what_rounding_adds_is_counted():
    """All entries round up, and |U V'|_2 = |U|_2 |V|_2: nothing else makes the bound larger."""
    up = 1 + 2**-8 + 2**-12
    ones = torch.full((1, 16, 1), up)
    factors = Factors(None, torch.full((1, 16), 1e-6), ones, ones)
    norms = torch.linalg.matrix_norm(factors.to(torch.float64).dense(), 2)
    rounded = torch.linalg.matrix_norm(factors.to(torch.bfloat16).to(torch.float64).dense(), 2)
    bound = norms + factors.growth(torch.bfloat16, torch.ones(1, 1))
    assert norms * 1.005 < rounded <= bound * (1 + 1e-12) < norms * 1.01


@kinds
@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.float32), (torch.float32, torch.float64)])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_start_may_be_of_another_dtype(graph, kind, dtypes, swapped):
    """It is taken as Z is."""
    (of_rows, of_start), energy = dtypes[::-1] if swapped else dtypes, learned(kind)
    Z, start = rows(1).to(of_rows), rows(2).to(of_start)
    found = unfold(Z, graph, energy, 2, init=start)
    assert torch.equal(found, unfold(Z, graph, energy, 2, init=start.to(of_rows)))
