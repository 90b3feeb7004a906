"""SGFormer against its equations with dense matrices of attention, forward and backward."""

import peer_cases as cases
import problems
import pytest
import torch
from torch.nn import functional as F

from machine import one_thread as one_thread
from musegnn.baselines.transformer import SGFormer

pytest.importorskip("torch_geometric")


def attention(block, X, heads):
    """Rows of (I + Q K' / n) V over their sums, for each head; rows of Q and K have norm 1. Then the mean."""
    n, found = len(X), []
    for h in range(heads):
        Q, K, V = ((X @ part.weight.T).view(n, heads, -1)[:, h] for part in (block.q, block.k, block.v))
        # PyG has no zeros here, so that each row has a direction.
        Q, K = (torch.where(part == 0, 1e-6, part) for part in (Q, K))
        Q, K = (part / part.norm(dim=1, keepdim=True) for part in (Q, K))
        weights = torch.eye(n, dtype=X.dtype) + Q @ K.T / n
        found.append(weights / weights.sum(dim=1, keepdim=True) @ V)
    return torch.stack(found).mean(dim=0)


def batch_norm(norm, X):
    apart = X - X.mean(dim=0)
    return apart / (apart.square().mean(dim=0) + norm.eps).sqrt() * norm.weight + norm.bias


def by_hand(model, sample, X, heads):
    inner, S = model.inner, cases.dense_s(sample)
    attends, graph = inner.trans_conv, inner.graph_conv
    first = torch.relu(attends.bns[0](attends.fcs[0](X)))
    (block,) = attends.attns
    ours = torch.relu(attends.bns[1]((attention(block, first, heads) + first) / 2))
    start = theirs = torch.relu(batch_norm(graph.bns[0], graph.fcs[0](X)))
    for conv, norm in zip(graph.convs, graph.bns[1:], strict=True):
        theirs = torch.relu(batch_norm(norm, S @ theirs @ conv.lin.weight.T + conv.bias)) + start
    return F.log_softmax(inner.fc((ours + theirs) / 2), dim=1)[: sample.num_seeds]


@pytest.mark.parametrize("sample", [cases.whole(), cases.part()], ids=["whole", "part"])
@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (1, 3)])
@pytest.mark.parametrize("normalize", [False, True])
def test_it_is_its_formula(sample, heads, layers, normalize):
    model = cases.peer(SGFormer, heads=heads, layers=layers, normalize=normalize)
    X = cases.features(sample)
    expected = by_hand(model, sample, cases.divided(X) if normalize else X, heads)
    cases.check_alike(model, model(sample, X), expected)


def test_heads_are_averaged():
    model, sample = cases.peer(SGFormer, heads=3, hidden=6, layers=2), cases.part()
    X = cases.features(sample)
    cases.check_alike(model, model(sample, X), by_hand(model, sample, X, 3))
    assert torch.get_default_dtype() == torch.float32


def test_dropout_is_drawn_in_training_only_and_the_running_means_are_buffers():
    model, sample = cases.peer(SGFormer, dropout=0.5, input_dropout=0.5, heads=1), cases.part()
    X = cases.features(sample)
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(model(sample, X))
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])
    kept = {name: part.clone() for name, part in model.state_dict().items()}
    model.eval()
    assert torch.equal(model(sample, X), model(sample, X))
    twin = cases.peer(SGFormer, heads=1)
    twin.load_state_dict(kept)
    assert torch.equal(twin.eval()(sample, X), model(sample, X))


def test_heads_must_share_the_width():
    with problems.refused("heads of SGFormer must divide hidden, 5; got 2. Take heads=1."):
        cases.peer(SGFormer, heads=2)
