"""The counting pass: which operators torch dispatched in a step, per group, and their FLOPs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.instruments.dispatched_op import (
    COLLECTIVES,
    COMPOSITE,
    Operator,
    launches_kernel,
    operator_of,
    runs_as_parts,
)
from llmprof.instruments.flop_formulas import formula_table, looks_like_matrix_work
from llmprof.schema.cost import OpGroup, Phase, StepShape
from llmprof.schema.run import CountedOp, CountedStep


@dataclass(slots=True)
class _Tally:
    calls: int = 0
    flops: int | None = None
    missing_formula: bool = False
    exchanged_bytes: int | None = None


class OpRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators of each step; also the probe that learns step and group.

    Use it around a round: `with OpRecorder() as recorder: workload.run_round(recorder)`. Operators
    outside a step are ignored, those outside a group count as `OTHER`. Views, allocations and other
    operators that launch no kernel are left out. Never time a recorded step: every operator takes
    a detour through Python.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._formulas: Mapping[object, Callable[..., int]] = formula_table()
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
        func: Operator,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator and tally it; a composite one is taken apart and its parts tallied."""
        kwargs = kwargs or {}
        if self._shape is None:
            return func(*args, **kwargs)
        if runs_as_parts(func, args):
            with self:
                # not func.decompose, which prefers Python rewrites that torch itself does not run
                return func._op_dk(COMPOSITE, *args, **kwargs)
        out = func(*args, **kwargs)
        if launches_kernel(func):
            self._tally(func, args, kwargs, out)
        return out

    def _tally(
        self, func: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        operator = operator_of(func)
        name = str(operator)
        tally = self._tallies.setdefault((name, self._group), _Tally())
        tally.calls += 1
        formula = self._formulas.get(operator)
        if formula is not None:
            tally.flops = (tally.flops or 0) + int(formula(*args, **kwargs, out_val=out))
        elif looks_like_matrix_work(name):
            tally.missing_formula = True
        elif name in COLLECTIVES:
            tally.exchanged_bytes = (tally.exchanged_bytes or 0) + args[0].nbytes


def first_and_last_of_each_phase(steps: tuple[CountedStep, ...]) -> tuple[CountedStep, ...]:
    """As many as a run file needs: costs between them follow from their shapes."""
    kept: list[CountedStep] = []
    for phase in Phase:
        of_phase = [step for step in steps if step.shape.phase is phase]
        kept += of_phase[:1] + of_phase[1:][-1:]
    return tuple(kept)


def _counted_ops(tallies: Mapping[tuple[str, OpGroup], _Tally]) -> tuple[CountedOp, ...]:
    return tuple(
        CountedOp(
            op=name,
            group=group,
            calls=tally.calls,
            flops=tally.flops,
            missing_formula=tally.missing_formula,
            exchanged_bytes=tally.exchanged_bytes,
        )
        for (name, group), tally in tallies.items()
    )
