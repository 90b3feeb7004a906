"""Every peer that is no convolution takes float32 and autocast to bfloat16, forward and backward."""

import peer_cases as cases
import pytest
import torch

from machine import one_thread as one_thread
from musegnn.baselines.catalog import make

GRAPH = cases.GRAPH


ALL = ["MLP", "SGC", "SIGN", "APPNP", "LabelPropagation", "LazyGNN", "USP", "SGFormer"]
WITHOUT_NEIGHBORS = ["MLP", "SGC", "SIGN"]


@pytest.mark.parametrize(
    ("name", "is_smoothed"), [*((n, False) for n in ALL), *((n, True) for n in WITHOUT_NEIGHBORS)]
)
def test_half_precision_is_nearly_the_same(name, is_smoothed):
    if name == "SGFormer":
        pytest.importorskip("torch_geometric")
    sample, found = cases.part("test"), []
    X = cases.features(sample).float()
    for enabled in (False, True):
        torch.manual_seed(0)
        shape = cases.shape(heads=1, normalize=True, correct_and_smooth=is_smoothed)
        model = make(name, GRAPH, GRAPH.num_classes, shape)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            torch.manual_seed(1)
            logits = model(sample, X).float()
        logits.square().sum().backward()
        assert all(part.grad.isfinite().all() for part in model.parameters())
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled), torch.no_grad():
            found += [logits.detach().softmax(1), model.eval()(sample, X).float().softmax(1)]
    torch.testing.assert_close(found[:2], found[2:], rtol=0, atol=0.03)
