"""Time as a fixed cost and a bandwidth: the line through the times of a few sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

_LEAST_SHARE: Final = 1e-3
"""Of the largest size's time, that its bytes take at least: a rate stays finite."""


@dataclass(frozen=True, slots=True)
class Line:
    """`n` bytes take `alpha_s` + n / `bytes_per_s`."""

    alpha_s: float
    bytes_per_s: float
    worst_error: float
    """Largest distance of a time from the line, over that time."""


def line_through(sizes_bytes: Sequence[int], times_s: Sequence[float]) -> Line:
    """That with the least relative errors: microseconds count as much as milliseconds.

    Alpha is no less than zero; sizes ascend, two at least.
    """
    sizes, times = np.array(sizes_bytes, dtype=float), np.array(times_s)
    columns = np.stack([np.ones_like(sizes), sizes], axis=1) / times[:, None]
    (alpha_s, seconds_per_byte), *_ = np.linalg.lstsq(columns, np.ones_like(times), rcond=None)
    alpha_s = max(0.0, float(alpha_s))
    least = float(times[-1] / sizes[-1]) * _LEAST_SHARE
    seconds_per_byte = max(float(seconds_per_byte), least)
    errors = np.abs((alpha_s + seconds_per_byte * sizes) / times - 1)
    return Line(alpha_s, 1 / seconds_per_byte, float(errors.max()))
