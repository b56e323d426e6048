"""Everything that the code of decode attention depends on, and what follows from it."""

import math
from dataclasses import dataclass
from typing import Final

from llmprof.engine.kernels.vector_ir import LANES

TILE: Final = 64
"""Tokens whose scores are kept at once: enough that rescaling sums is rare, few enough that rows of
keys and values are still in the second-level cache when they are used."""

_SUM_REGISTERS: Final = 24
_BYTES: Final = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1, "fp8": 1}


@dataclass(frozen=True, slots=True)
class DecodeVariant:
    dtype: str
    """fp32, bf16 or fp16: of queries and output."""
    kv_dtype: str
    kv_heads: int
    heads_per_kv_head: int
    head_dim: int
    block_tokens: int | None
    """None where every sequence is one block."""
    window: int | None = None
    """Tokens that are seen at most; None: all."""
    cap: float | None = None
    """Scores s become cap * tanh(s / cap)."""
    scale: float | None = None
    """None: 1 / sqrt(head_dim)."""

    @property
    def kv_bytes(self) -> int:
        """Of one stored number."""
        return _BYTES[self.kv_dtype]

    @property
    def piece_tokens(self) -> int | None:
        """Adjacent tokens in one block that are followed, a tile later, by tokens in one block."""
        return None if self.block_tokens is None else min(self.block_tokens, TILE)

    @property
    def lanes(self) -> int:
        """Of vectors along head_dim: the widest that divides it."""
        return math.gcd(self.head_dim, LANES)

    @property
    def paired(self) -> bool:
        """bf16 numbers are loaded two by two: the even ones of a stretch, then the odd ones.

        A shift and a mask then widen them, without the shuffle that zero extension takes.
        """
        return self.kv_dtype == "bf16" and self.head_dim % (2 * self.lanes) == 0

    @property
    def parts(self) -> int:
        """Passes over a KV head's keys and values, each for `group` of its query heads."""
        return next(
            parts
            for parts in range(1, self.heads_per_kv_head + 1)
            if self.heads_per_kv_head % parts == 0
            and _power_of_two(self.heads_per_kv_head // parts) <= self.lanes
        )

    @property
    def group(self) -> int:
        """Query heads that are worked on at once."""
        return self.heads_per_kv_head // self.parts

    @property
    def padded_group(self) -> int:
        return _power_of_two(self.group)

    @property
    def rows(self) -> int:
        """Tokens that are worked on at once, a power of two."""
        return min(self.lanes // self.padded_group, self.block_tokens or TILE)

    @property
    def width(self) -> int:
        """Lanes of a vector of scores: `rows` tokens of each head of a group side by side."""
        return self.padded_group * self.rows

    @property
    def slabs(self) -> tuple[range, ...]:
        """Ranges of vectors along head_dim whose sums fit into registers for a whole group."""
        vectors = self.head_dim // self.lanes
        step = 2 if self.paired else 1
        fitting = max(step, _SUM_REGISTERS // self.group // step * step)
        return tuple(
            range(first, min(first + fitting, vectors)) for first in range(0, vectors, fitting)
        )

    @property
    def state_floats(self) -> int:
        """Of a group's online softmax (peaks, masses, sums), in whole cache lines."""
        return -(-(2 * self.width + self.group * self.head_dim) // LANES) * LANES


def _power_of_two(count: int) -> int:
    """The smallest that is not below `count`."""
    return 1 << (count - 1).bit_length()
