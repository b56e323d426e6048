"""Bounds on the numbers of a configuration: far beyond every real model, far below nonsense."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """The values of a field that a real model could have, both ends included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"from {self.low:,} to {self.high:,}"


LAYERS: Final = Limits(1, 2_000)
HIDDEN: Final = Limits(1, 262_144)
INTERMEDIATE: Final = Limits(1, 2_097_152)
HEADS: Final = Limits(1, 8_192)
EXPERTS: Final = Limits(1, 65_536)
CONV_KERNEL: Final = Limits(1, 1_024)
HEAD_DIM: Final = Limits(2, 8_192)
VOCAB: Final = Limits(1, 16_777_216)
POSITIONS: Final = Limits(1, 1_073_741_824)
TOKEN_ID: Final = Limits(0, 2_147_483_647)
NORM_EPS: Final = Limits(1e-20, 0.1)
ROPE_THETA: Final = Limits(1, 10**15)
SCALING_FACTOR: Final = Limits(1, 100_000)
SHARE: Final = Limits(1e-6, 1)
POSITIVE: Final = Limits(1e-6, 10**6)
ANY_INTEGER: Final = Limits(-(2**63), 2**64)
