"""How a product of a few rows with a packed weight is cut among the programs of a GPU."""

from dataclasses import dataclass
from typing import Final

import triton

from llmprof.engine.kernels.triton.weight_codes import UNIT_BYTES

_LEAST_ROWS_OF_DOTS: Final = 2
"""From so many rows on the tensor cores multiply, which want 16 and are given zeros for the rest."""
_PROGRAMS_PER_MULTIPROCESSOR: Final = 4
"""Fewer leave a GPU's memory waiting: then the sum over in_features is split among more of them."""
_MOST_SPLITS: Final = 16


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
    outputs, units = (32, 8) if by_dots else (8, 32)
    num_units = -(-row_bytes // UNIT_BYTES)
    programs = -(-out_features // outputs)
    wanted = -(-_PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // programs)
    splits = max(1, min(wanted, _MOST_SPLITS, num_units // units))
    return MatvecPlan(by_dots, padded_rows, outputs, units, splits, warps=4)
