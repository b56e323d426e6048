"""A sweep as lines: one axis runs along x, each combination of the others is a line."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmprof.renderers.sweep_columns import Quantity
from llmprof.renderers.sweep_words import spelled
from llmprof.schema.settings import GridValue
from llmprof.schema.sweep import Sweep, SweepAxis, SweepCell


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    """The values of the other axes; empty where there are none."""
    cells: tuple[SweepCell, ...]
    """In the order of x."""

    def having(self, *quantities: Quantity) -> tuple[SweepCell, ...]:
        return tuple(
            cell for cell in self.cells if all(q.point(cell) is not None for q in quantities)
        )


def x_axis(axes: Sequence[SweepAxis]) -> SweepAxis:
    """The axis with most values, of numbers where one has them."""
    return max(axes, key=lambda axis: (is_numeric(axis), len(axis.values)))


def is_numeric(axis: SweepAxis) -> bool:
    """Several numbers, and nothing else."""
    return len(axis.values) > 1 and all(map(_is_number, axis.values))


def _is_number(value: GridValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def x_position(axis: SweepAxis, value: GridValue) -> float:
    """The number itself; of words their place in the axis."""
    if is_numeric(axis) and isinstance(value, int | float):
        return float(value)
    return float(axis.values.index(value))


def lines(sweep: Sweep) -> tuple[Line, ...]:
    """In the order of the grid."""
    axis = x_axis(sweep.axes)
    grouped: dict[str, list[SweepCell]] = {}
    for cell in sweep.cells:
        others = {key: value for key, value in cell.changes.items() if key != axis.key}
        grouped.setdefault(spelled(others), []).append(cell)
    return tuple(
        Line(label, tuple(sorted(cells, key=lambda cell: x_position(axis, cell.changes[axis.key]))))
        for label, cells in grouped.items()
    )
