"""The counting pass: which operators torch dispatched in a step, per group, and their FLOPs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.instruments.flop_formulas import formula_table, looks_like_matrix_work
from llmprof.schema.cost import OpGroup, StepShape
from llmprof.schema.run import CountedOp, CountedStep

_COMPOSITE = DispatchKey.CompositeImplicitAutograd

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


@dataclass(slots=True)
class _Tally:
    calls: int = 0
    flops: int | None = None
    missing_formula: bool = False


class OpRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators of each step; also the probe that learns step and group.

    Use it around a round: `with OpRecorder() as recorder: workload.run_round(recorder)`. Operators
    outside a step are ignored, those outside a group count as `OTHER`. Views, allocations and other
    operators that launch no kernel are left out. Never time a recorded step: every operator takes
    a detour through Python.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._formulas: Mapping[object, Callable[..., int]] = formula_table()
        self._composite: dict[tuple[OpOverload[..., Any], str], bool] = {}
        self._shape: StepShape | None = None
        self._group = OpGroup.OTHER
        self._tallies: dict[tuple[str, OpGroup], _Tally] = {}
        self._steps: list[CountedStep] = []

    def steps(self) -> tuple[CountedStep, ...]:
        """The steps so far, in order."""
        return tuple(self._steps)

    def step_begin(self, shape: StepShape) -> None:
        self._shape, self._group, self._tallies = shape, OpGroup.OTHER, {}

    def step_end(self) -> None:
        if self._shape is not None:
            self._steps.append(CountedStep(shape=self._shape, ops=_counted_ops(self._tallies)))
        self._shape = None

    def group_begin(self, group: OpGroup) -> None:
        self._group = group

    def group_end(self) -> None:
        self._group = OpGroup.OTHER

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator and tally it; a composite one is taken apart and its parts tallied."""
        kwargs = kwargs or {}
        if self._shape is None:
            return func(*args, **kwargs)
        if self._is_composite(func, args):
            with self:
                # not func.decompose, which prefers Python rewrites that torch itself does not run
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        out = func(*args, **kwargs)
        if not func.is_view and str(func.overloadpacket) not in _NO_KERNEL:
            self._tally(func, args, kwargs, out)
        return out

    def _is_composite(self, func: OpOverload[..., Any], args: tuple[Any, ...]) -> bool:
        """Whether torch itself would run `func` as other operators on this device.

        Under inference mode composites (`aten.linear`, `aten.scaled_dot_product_attention`) arrive
        whole. One that has a kernel of its own for the device runs as that kernel.
        """
        device = next((a.device.type for a in args if isinstance(a, torch.Tensor)), "cpu")
        key = (func, device)
        if key not in self._composite:
            self._composite[key] = _has_kernel(func, _COMPOSITE.name) and not _has_kernel(
                func, device.upper()
            )
        return self._composite[key]

    def _tally(
        self, func: OpOverload[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        name = str(func.overloadpacket)
        tally = self._tallies.setdefault((name, self._group), _Tally())
        tally.calls += 1
        formula = self._formulas.get(func.overloadpacket)
        if formula is not None:
            tally.flops = (tally.flops or 0) + int(formula(*args, **kwargs, out_val=out))
        elif looks_like_matrix_work(name):
            tally.missing_formula = True


def _has_kernel(func: OpOverload[..., Any], dispatch_key: str) -> bool:
    name: str = func.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, dispatch_key)


def _counted_ops(tallies: Mapping[tuple[str, OpGroup], _Tally]) -> tuple[CountedOp, ...]:
    return tuple(
        CountedOp(
            op=name,
            group=group,
            calls=tally.calls,
            flops=tally.flops,
            missing_formula=tally.missing_formula,
        )
        for (name, group), tally in tallies.items()
    )
