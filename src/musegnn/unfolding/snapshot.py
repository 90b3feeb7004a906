"""A copy of an energy that stays as it is: a way back, or another thread, must not meet other settings."""

from copy import copy
from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def as_it_is(energy: Module, *, learns: bool = True) -> Module:
    """A copy that no later change of a setting reaches; its parameters are the same, or constants."""
    copies: dict[nn.Module, nn.Module] = {}

    def copied(module: nn.Module) -> nn.Module:
        if module not in copies:
            made = copies[module] = copy(module)
            parameters, children = module._parameters.items(), module._modules.items()
            made._parameters = {
                name: part if part is None or learns else nn.Parameter(part.detach(), requires_grad=False)
                for name, part in parameters
            }
            made._modules = {name: None if child is None else copied(child) for name, child in children}
        return copies[module]

    return copied(energy)  # type: ignore[return-value]
