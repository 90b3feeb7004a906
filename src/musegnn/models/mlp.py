"""The networks before and behind the descent steps."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from musegnn.errors import InputError
from musegnn.models.dropout import Dropout

Norm = Literal["none", "layer"]


class MLP(nn.Module):
    """Linear layers with ReLU and dropout between them, and one Linear past them all if `skip`.

        f(x) = W_L relu(... relu(W_1 x + b_1) ...) + b_L  (+ W_s x + b_s)

    With `norm="layer"` each ReLU takes what a layer norm makes of its input.

    Args:
        widths: in_dim, the widths between, out_dim; two numbers are a single layer.
        dropout: After each ReLU.
        input_dropout: Of the input itself.
        skip: One Linear from the input to the output.
        normalize: Divide each row of the input by the sum of its absolute values, as for bags of words.
        norm: "none" or "layer".
    """

    def __init__(
        self,
        widths: list[int],
        *,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        skip: bool = False,
        normalize: bool = False,
        norm: Norm = "none",
    ) -> None:
        super().__init__()
        if len(widths) < 2 or min(widths) < 1:
            raise InputError(f"An MLP needs two widths or more, each at least 1; got {widths}.")
        for name, share in (("dropout", dropout), ("input_dropout", input_dropout)):
            if not 0 <= share < 1:
                raise InputError(f"{name} must lie in [0, 1), got {share}.")
        if norm not in ("none", "layer"):
            raise InputError(f"norm must be 'none' or 'layer', got {norm!r}.")
        self.widths = list(widths)
        self.normalize = normalize
        self.norm = norm
        self.input_dropout = Dropout(input_dropout)
        layers: list[nn.Module] = [nn.Linear(widths[0], widths[1])]
        for before, after in zip(widths[1:-1], widths[2:], strict=True):
            layers += [nn.LayerNorm(before)] if norm == "layer" else []
            layers += [Dropout(dropout, relu=True), nn.Linear(before, after)]
        self.layers = nn.Sequential(*layers)
        self.skip = nn.Linear(widths[0], widths[-1]) if skip else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier, normal; no bias. A norm begins with 1 and 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()

    def forward(self, x: Float[Tensor, "nodes in_dim"]) -> Float[Tensor, "nodes out_dim"]:
        """f(x)."""
        x = self.input_dropout(F.normalize(x, p=1.0, dim=1) if self.normalize else x)
        result: Tensor = self.layers(x)
        return result if self.skip is None else result + self.skip(x)
