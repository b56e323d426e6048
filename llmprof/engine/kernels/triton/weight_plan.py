"""How a product of a few rows with a packed weight is cut among the programs of a GPU."""

from dataclasses import dataclass
from typing import Final

import triton

from llmprof.engine.kernels.triton.weight_codes import UNIT_BYTES

_LEAST_ROWS_OF_DOTS: Final = 2
"""From so many rows on the tensor cores multiply, which want 16 and are given zeros for the rest."""
_MOST_SPLITS: Final = 16


@dataclass(frozen=True, slots=True)
class Tiling:
    """What a program takes at once, and how many programs a GPU is given.

    Bytes on their way hide the latency of memory (Little's law): 4.8 TB/s times 600 ns are 2.9 MB, 22 KB
    for each of 132 multiprocessors.
    """

    outputs: int
    """Rows of W of one program."""
    units: int
    """Of 16 bytes that a program reads of each of them at once."""
    warps: int
    per_multiprocessor: int
    """Programs; fewer leave memory waiting: then the sum over in_features is split among more."""


ONE_ROW: Tiling = Tiling(outputs=8, units=128, warps=4, per_multiprocessor=3)
"""A thread has a unit of each of the 8 outputs, 128 bytes on their way, and prepares the x that they
share once. `scripts/gpu/tilings.py` tries others on a GPU."""
SOME_ROWS: Tiling = Tiling(outputs=32, units=8, warps=4, per_multiprocessor=4)
"""On tensor cores, whose loads are several tiles ahead of them."""


@dataclass(frozen=True, slots=True)
class MatvecPlan:
    """How the work is cut.

    The same for the same shapes: a race of plans would let two runs of one setting differ in speed,
    and in the last bit of their results.
    """

    by_dots: bool
    padded_rows: int
    outputs: int
    """Rows of W of one program."""
    units: int
    """Of 16 bytes that a program reads of each of them at once."""
    splits: int
    """Programs that share an output."""
    warps: int


def plan_matvec(
    rows: int, out_features: int, row_bytes: int, num_multiprocessors: int
) -> MatvecPlan:
    """Whole lines of 128 bytes and more per row of W, and enough programs to fill the GPU."""
    by_dots = rows >= _LEAST_ROWS_OF_DOTS
    padded_rows = max(16, triton.next_power_of_2(rows)) if by_dots else rows
    tiling = SOME_ROWS if by_dots else ONE_ROW
    num_units = -(-row_bytes // UNIT_BYTES)
    units = tiling.units if by_dots else min(tiling.units, triton.next_power_of_2(num_units))
    programs = -(-out_features // tiling.outputs)
    wanted = -(-tiling.per_multiprocessor * num_multiprocessors // programs)
    splits = max(1, min(wanted, _MOST_SPLITS, num_units // units))
    return MatvecPlan(by_dots, padded_rows, tiling.outputs, units, splits, tiling.warps)
