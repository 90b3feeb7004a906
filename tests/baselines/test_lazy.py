"""LazyGNN against its equations with dense matrices, its two limits, and a past that a checkpoint holds."""

import peer_cases as cases
import pytest
import torch

from machine import one_thread as one_thread
from musegnn.baselines.lazy import LazyGNN
from musegnn.baselines.propagation import APPNP

T, B = 0.2, 0.4
GRAPH = cases.GRAPH


def logits_and_gradients(model, sample, loss):
    model.zero_grad()
    logits = model(sample, cases.features(sample))
    (logits * loss[: len(logits)]).sum().backward()
    return logits.detach(), {name: part.grad.clone() for name, part in model.named_parameters()}


class ByHand:
    """The equations of the docstring, with dictionaries of rows as the past."""

    def __init__(self, model, steps):
        self.model, self.steps, self.Y, self.V = model, steps, {}, {}

    def _steps(self, sample, Z, past):
        ids, S = sample.node_ids.tolist(), cases.dense_s(sample)
        rows = [(1 - B) * past[v] + B * z if v in past else z for v, z in zip(ids, Z, strict=True)]
        Y = torch.stack(rows)
        for _ in range(self.steps):
            Y = (1 - T) * S @ Y + T * Z
        past |= dict(zip(ids, Y, strict=True))
        return Y

    def __call__(self, sample, loss):
        Z = cases.by_hand(self.model.f, cases.features(sample))
        Y = self._steps(sample, Z.detach(), self.Y)
        G = torch.zeros_like(Y)
        G[: sample.num_seeds] = loss[: sample.num_seeds]
        V = self._steps(sample, G, self.V)
        weights = dict(self.model.named_parameters())
        found = torch.autograd.grad(Z, list(weights.values()), V)
        return Y[: sample.num_seeds], dict(zip(weights, found, strict=True))


@pytest.mark.parametrize("steps", [1, 3])
def test_visits_go_on_from_the_last_ones(steps):
    """Samples that overlap, so that some nodes have a past and others none."""
    torch.manual_seed(1)
    model = cases.peer(LazyGNN, steps=steps)
    by_hand = ByHand(model, steps)
    visits = [cases.part(index=0), cases.part(index=1), cases.part(index=0), cases.whole(), cases.part()]
    for sample in visits:
        loss = torch.randn(GRAPH.num_nodes, GRAPH.num_classes, dtype=torch.float64)
        logits, gradients = logits_and_gradients(model, sample, loss)
        expected, expected_gradients = by_hand(sample, loss)
        torch.testing.assert_close(logits, expected, **cases.CLOSE)
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected_gradients[name], **cases.CLOSE)
        with torch.no_grad():
            for part in model.parameters():
                part -= 0.1 * part.grad
    for past, rows in (("past", by_hand.Y), ("past_gradient", by_hand.V)):
        table = torch.stack([rows[v] for v in range(GRAPH.num_nodes)])
        torch.testing.assert_close(getattr(model, past), table, **cases.CLOSE)


def test_without_a_past_it_is_appnp_and_its_gradient():
    """momentum = 1 forgets everything."""
    torch.manual_seed(1)
    lazy, appnp = (cases.peer(kind, momentum=1.0) for kind in (LazyGNN, APPNP))
    for sample in (cases.whole(), cases.part(), cases.whole()):
        loss = torch.randn(sample.num_seeds, GRAPH.num_classes, dtype=torch.float64)
        logits, gradients = logits_and_gradients(lazy, sample, loss)
        expected, expected_gradients = logits_and_gradients(appnp, sample, loss)
        torch.testing.assert_close(logits, expected, **cases.CLOSE)
        assert gradients.keys() == expected_gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected_gradients[name], **cases.CLOSE)


@pytest.mark.parametrize(("steps", "visits", "momentum"), [(120, 1, 0.4), (120, 2, 0.4), (1, 120, 0.0)])
def test_many_steps_or_many_visits_come_to_the_fixed_point(steps, visits, momentum):
    """Y* = t (I - (1 - t) S)^-1 Z and its exact gradient, to 1e-6."""
    torch.manual_seed(1)
    model, sample = cases.peer(LazyGNN, steps=steps, momentum=momentum), cases.whole()
    loss = torch.randn(sample.num_seeds, GRAPH.num_classes, dtype=torch.float64)
    for _ in range(visits):
        logits, gradients = logits_and_gradients(model, sample, loss)
    S = cases.dense_s(sample)
    system = torch.eye(len(S), dtype=torch.float64) - (1 - T) * S
    Y = T * torch.linalg.solve(system, cases.by_hand(model.f, cases.features(sample)))[: sample.num_seeds]
    weights = dict(model.named_parameters())
    expected = torch.autograd.grad((Y * loss).sum(), list(weights.values()))
    torch.testing.assert_close(logits, Y.detach(), rtol=1e-6, atol=1e-6)
    for name, gradient in zip(weights, expected, strict=True):
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-6, atol=1e-6)


def test_evaluation_reads_the_past_and_leaves_it_alone():
    torch.manual_seed(1)
    model, sample = cases.peer(LazyGNN), cases.part("test")
    X = cases.features(sample)
    fresh = model.eval()(sample, X)
    assert not model.past.any()
    logits_and_gradients(model.train(), cases.whole(), torch.randn(45, 3, dtype=torch.float64))
    kept = {name: part.clone() for name, part in model.state_dict().items()}
    model.eval()
    first, second = (logits_and_gradients(model, sample, torch.ones(45, 3))[0] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.allclose(first, fresh)
    assert all(torch.equal(part, kept[name]) for name, part in model.state_dict().items())


def test_a_checkpoint_holds_the_past():
    torch.manual_seed(1)
    loss = torch.randn(45, 3, dtype=torch.float64)
    model, twin = cases.peer(LazyGNN), cases.peer(LazyGNN)
    logits_and_gradients(model, cases.whole(), loss)
    twin.load_state_dict(model.state_dict())
    found, expected = (logits_and_gradients(one, cases.part(), loss) for one in (model, twin))
    assert torch.equal(found[0], expected[0])
    assert all(torch.equal(found[1][name], expected[1][name]) for name in found[1])
