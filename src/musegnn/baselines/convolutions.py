"""GCN, GraphSAGE and GAT: PyG's convolutions, classic or tuned, with or without memory."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from musegnn.baselines.contract import Baseline, Shape
from musegnn.baselines.histories import Block, memory_of
from musegnn.errors import InputError
from musegnn.extras import require
from musegnn.graph import Graph
from musegnn.models.dropout import Dropout
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows

_NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}


class Layer(nn.Module):
    """One convolution, what goes past it, and what comes behind it, which the last layer does not have.

        h = conv(x) (+ skip(x)),   x' = act(norm(h))

    Args:
        conv: Called with the rows and where they are.
        widths: Of x and of h; the skip is a Linear where they differ.
        norm: Behind the sum.
        residual: Whether there is a skip.
        act: Behind the norm.
    """

    def __init__(
        self,
        conv: nn.Module,
        widths: tuple[int, int],
        norm: Literal["none", "layer", "batch"],
        residual: bool,
        act: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.conv, self.act = conv, act
        past = nn.Identity() if widths[0] == widths[1] else nn.Linear(*widths)
        self.skip = past if residual else None
        self.norm: nn.Module = _NORMS[norm](widths[1])

    def forward(self, x: Float[Tensor, "nodes in_dim"], where: Any) -> Float[Tensor, "nodes out_dim"]:
        """h."""
        h: Tensor = self.conv(x, where)
        return h if self.skip is None else h + self.skip(x)

    def finish(self, h: Rows, *, quiet: bool = False) -> Rows:
        """x'; if `quiet`, with the statistics that a batch norm has, as it must for a single row."""
        was_training = self.norm.training
        self.norm.train(was_training and not quiet and len(h) > 1)
        x = self.act(self.norm(h))
        self.norm.train(was_training)
        return x


class Convolutions(Baseline):
    """Layers of convolutions: classic with norm "none" and no residual, tuned with "layer" and residual.

    With a history, rows outside of the sample, or of earlier steps, take part (`histories`).
    """

    act: Callable[[Tensor], Tensor] = staticmethod(F.relu)
    takes_inputs = True

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        self.input_dropout, self.dropout = Dropout(shape.input_dropout), Dropout(shape.dropout)
        widths = [self.in_dim, *[shape.hidden] * (shape.layers - 1), out_dim]
        last = shape.layers - 1
        self.layers = nn.ModuleList()
        for number, ends in enumerate(zip(widths[:-1], widths[1:], strict=True)):
            conv = self.convolution(*ends, is_last=number == last)
            norm = "none" if number == last else shape.norm
            self.layers.append(Layer(conv, ends, norm, shape.residual, type(self).act))
        self.memory = memory_of(graph, shape)

    @abstractmethod
    def convolution(self, in_dim: int, out_dim: int, *, is_last: bool) -> nn.Module:
        """Of these widths."""

    @property
    def pyg(self) -> Any:
        """Where PyG's are."""
        return require("torch_geometric.nn", type(self).__name__)

    def where(self, block: Block) -> Any:
        """What the convolution reads its neighbors from."""
        return block

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """Layer by layer; the memory is told of every row but the last layer's."""
        block, x = self.memory.open(sample, features)
        x = self.input_dropout(F.normalize(x, p=1.0, dim=1) if self.shape.normalize else x)
        where = self.where(block)
        *hidden, last = self.layers
        for number, layer in enumerate(hidden):
            assert isinstance(layer, Layer)
            x = self.dropout(self.memory.exchange(number, block, layer(x, where), layer.finish))
        logits: Tensor = last(x, where)
        return logits[: sample.num_seeds]


class GCN(Convolutions):
    """Kipf and Welling 2017: h = D'^-1/2 (A + I) D'^-1/2 X W + b.

    PyG's layer, in which the sum over the neighbors is our kernel's: on a CPU, gathering and scattering takes
    many times as long.
    """

    def convolution(self, in_dim: int, out_dim: int, *, is_last: bool) -> nn.Module:
        """With weights and bias of PyG's."""
        conv: nn.Module = self.pyg.GCNConv(in_dim, out_dim, normalize=False)
        conv.propagate = _smoothed  # type: ignore[assignment]
        return conv


class SAGE(Convolutions):
    """GraphSAGE with means, Hamilton et al. 2017: h = mean of the neighbors' X W_l + b + X W_r.

    As for GCN, the sum over the neighbors is our kernel's.
    """

    def convolution(self, in_dim: int, out_dim: int, *, is_last: bool) -> nn.Module:
        """With weights and bias of PyG's."""
        conv: nn.Module = self.pyg.SAGEConv(in_dim, out_dim)
        conv.propagate = _averaged  # type: ignore[assignment]
        return conv


class GAT(Convolutions):
    """Velickovic et al. 2018: h_v = sum over the neighbors u and v of a_vu W x_u, for each head.

        a_vu = softmax over u of leaky_relu(a . [W x_v, W x_u])

    The heads share the width `hidden` between them; those of the last layer are averaged. The attention
    has the dropout of the layers. PyG gathers a row for each edge, in memory and in time.
    """

    act = staticmethod(F.elu)

    def convolution(self, in_dim: int, out_dim: int, *, is_last: bool) -> nn.Module:
        """PyG's own."""
        heads = self.shape.heads
        if not is_last and out_dim % heads:
            raise InputError(
                f"heads of GAT must divide hidden: got heads={heads} and hidden={out_dim}. "
                f"Take hidden={max(out_dim // heads, 1) * heads}."
            )
        settings = {"heads": heads, "concat": not is_last, "dropout": self.shape.dropout}
        conv: nn.Module = self.pyg.GATConv(in_dim, out_dim if is_last else out_dim // heads, **settings)
        return conv

    def where(self, block: Block) -> Any:
        """The edges; loops are added by PyG."""
        return block.edges


def _smoothed(block: Block, *, x: Rows, edge_weight: None = None) -> Rows:
    """In the place of PyG's `propagate`."""
    return block.smooth(x)


def _averaged(block: Block, *, x: tuple[Rows, Rows], size: None = None) -> Rows:
    """In the place of PyG's `propagate`."""
    return block.average(x[0])
