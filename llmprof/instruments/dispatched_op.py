"""What an operator is that torch dispatches: a kernel, several, or none."""

import functools
from typing import Any, TypeGuard

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, OpOverload

Operator = OpOverload[..., Any] | HigherOrderOperator
"""What a dispatch mode is given: `flex_attention` is of the second kind."""

COMPOSITE = DispatchKey.CompositeImplicitAutograd

COLLECTIVES = frozenset({"llmprof.all_reduce_", "llmprof.all_gather"})
"""Operators that exchange their first argument with other ranks."""

_NO_KERNEL = frozenset(
    {
        # allocations, and new descriptions of old storage that the schema does not call views
        "aten.empty",
        "aten.empty_like",
        "aten.empty_strided",
        "aten.new_empty",
        "aten.new_empty_strided",
        "aten._unsafe_view",
        "aten.detach_",
        "aten.squeeze_",
        "aten.unsqueeze_",
        "aten.transpose_",
        "aten.t_",
        "prim.device",
    }
)


def operator_of(func: Operator) -> object:
    """What formulas are kept by: all overloads of a name together."""
    return func if isinstance(func, HigherOrderOperator) else func.overloadpacket


def launches_kernel(func: Operator) -> bool:
    """Whether it does work: not a view, an allocation or a question."""
    if isinstance(func, HigherOrderOperator):
        return True
    return not func.is_view and str(func.overloadpacket) not in _NO_KERNEL


def runs_as_parts(func: Operator, args: tuple[Any, ...]) -> TypeGuard[OpOverload[..., Any]]:
    """Whether torch itself would run `func` as other operators on this device.

    Under inference mode composites (`aten.linear`, `aten.scaled_dot_product_attention`) arrive
    whole. One that has a kernel of its own for the device runs as that kernel.
    """
    if isinstance(func, HigherOrderOperator):
        return False
    device = next((a.device.type for a in args if isinstance(a, torch.Tensor)), "cpu")
    return _is_composite(func, device)


@functools.cache
def _is_composite(func: OpOverload[..., Any], device: str) -> bool:
    return _has_kernel(func, COMPOSITE.name) and not _has_kernel(func, device.upper())


def _has_kernel(func: OpOverload[..., Any], dispatch_key: str) -> bool:
    name: str = func.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, dispatch_key)
