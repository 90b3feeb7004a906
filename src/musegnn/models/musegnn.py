"""The model of algorithm 1: features -> f -> K descent steps -> g -> classes."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.models.mlp import MLP, Norm
from musegnn.sampling.record import Sample
from musegnn.unfolding import AbstractEnergy, Energy, unfold
from musegnn.unfolding.contract import Alpha, Seen, Subgraph
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.staged import Staged


class MuseGNN(nn.Module):
    """Y = K descent steps from Z = f(X; W); the classes of the seeds are g(Y; theta).

    Args:
        in_dim: Features of a node.
        out_dim: Classes.
        hidden: d, the width of f, of the embeddings and of g.
        energy: Its steps are the layers; the paper's with lambda 1 and gamma 0 unless given.
        steps: K.
        layers: Of f.
        output_layers: Of g; as many as f has unless given.
        dropout: In f and g, after each ReLU.
        input_dropout: Of the features.
        embedding_dropout: Of Y, before g.
        skip: One Linear past all layers of f, and one of g.
        normalize: Divide each row of the features by the sum of its absolute values.
        norm: "layer" for a layer norm before each ReLU of f and g.
        label_inputs: So many classes of training nodes f sees behind the features, or 0; needs gamma 0.
        type_inputs: So many types of nodes f sees behind the features, or 0.
        alpha: The step size, or "auto".
        f, g: Any modules in place of the two MLPs, such as `MLP([128, 1024, 512])` for other widths; f maps
            in_dim to d, g maps d to out_dim.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        hidden: int = 512,
        energy: AbstractEnergy | None = None,
        steps: int = 8,
        *,
        layers: int = 3,
        output_layers: int | None = None,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        skip: bool = False,
        normalize: bool = False,
        norm: Norm = "none",
        label_inputs: int = 0,
        type_inputs: int = 0,
        alpha: Alpha = "auto",
        f: nn.Module | None = None,
        g: nn.Module | None = None,
    ) -> None:
        super().__init__()
        output_layers = layers if output_layers is None else output_layers
        if min(layers, output_layers) < 1 or steps < 0:
            raise InputError(
                f"MuseGNN needs layers >= 1, output_layers >= 1 and steps >= 0, "
                f"got {layers}, {output_layers} and {steps}."
            )
        if energy is not None and not isinstance(energy, AbstractEnergy):
            raise InputError(f"energy must be a musegnn.Energy or another AbstractEnergy, got {energy!r}.")
        if isinstance(energy, Staged) and steps < len(energy.energies):
            raise InputError(
                f"The energy has {len(energy.energies)} stages, but there are {steps} steps: some would "
                "never be learned. Take a step for each, or fewer stages."
            )
        if f is None and energy is not None and energy.dim not in (None, hidden):
            raise InputError(
                f"The energy is one of {energy.dim} columns, but hidden={hidden}. Make both of one width."
            )
        if f is None:
            widths = [in_dim + type_inputs + label_inputs, *[hidden] * layers]
            f = MLP(
                widths,
                dropout=dropout,
                input_dropout=input_dropout,
                skip=skip,
                normalize=normalize,
                norm=norm,
            )
        if g is None:
            widths = [*[hidden] * output_layers, out_dim]
            g = MLP(widths, dropout=dropout, input_dropout=embedding_dropout, skip=skip, norm=norm)
        self.f, self.g = f, g
        self.energy = Energy() if energy is None else energy
        self.steps = steps
        self.alpha = alpha
        self.label_inputs, self.type_inputs = label_inputs, type_inputs

    def embed(
        self,
        sample: Subgraph,
        features: Float[Tensor, "nodes in_dim"],
        mu: Rows | None = None,
        *,
        seen: Seen | None = None,
    ) -> Rows:
        """Y^(K) of all nodes of a sample."""
        _check_features(sample, features)
        return unfold(self.f(features), sample, self.energy, self.steps, self.alpha, mu, seen=seen)

    def forward(
        self,
        sample: Subgraph,
        features: Float[Tensor, "nodes in_dim"],
        mu: Rows | None = None,
        *,
        seen: Seen | None = None,
    ) -> Float[Tensor, "seeds out_dim"]:
        """The seeds' logits; those of all nodes where no seeds are told, as in a whole graph."""
        Y = self.embed(sample, features, mu, seen=seen)
        logits: Tensor = self.g(Y[: sample.num_seeds] if isinstance(sample, Sample) else Y)
        return logits

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw f and g anew."""
        for part in (self.f, self.g):
            _reset(part)


def _check_features(sample: object, features: object) -> None:
    if not isinstance(features, Tensor) or features.ndim != 2 or not features.is_floating_point():
        got = (
            f"{features.dtype}{list(features.shape)}"
            if isinstance(features, Tensor)
            else type(features).__name__
        )
        raise InputError(
            f"features must be a floating-point tensor of shape (nodes, in_dim), got {got}. "
            "Take torch.as_tensor(g.features[s.node_ids], dtype=torch.float32)."
        )
    if isinstance(sample, Sample | Graph) and len(features) != sample.num_nodes:
        raise InputError(
            f"There are {len(features):,} rows of features, but {sample.num_nodes:,} nodes. "
            "Pass a row for each node, g.features[s.node_ids]."
        )


def _reset(module: nn.Module) -> None:
    """A module that can draw itself anew does so; its children do in the place of one that cannot."""
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
    else:
        for child in module.children():
            _reset(child)
