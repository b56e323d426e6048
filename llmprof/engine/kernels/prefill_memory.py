"""What a thread keeps while it attends from 32 queries of every head of a group."""

from dataclasses import dataclass
from typing import Any, Final

from llmprof.engine.kernels.tile_blocks import BLOCK
from llmprof.engine.kernels.tiles import ROW_BYTES
from llmprof.engine.kernels.vector_ir import F32, I16, index_constant

CHUNK_TOKENS: Final = 256
"""Attended to at once: 32 KiB of scores."""


@dataclass(frozen=True, slots=True)
class PrefillVariant:
    """Everything that the code depends on."""

    kv_heads: int
    group: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class PrefillMemory:
    """Of one thread; the first four have a part for each head of the group."""

    queries: Any
    """bf16 right-hand tiles, [head_dim / 32, 2] for the halves of the queries."""
    peaks: Any
    """float32 [32]: the largest score so far, times the factor that makes it an exponent of two."""
    masses: Any
    """float32 [32]: the sum of probabilities relative to it."""
    sums: Any
    """float32 [head_dim, 32]: of values weighted by them."""
    scores: Any
    """float32 [chunk, 32]."""
    weights: Any
    """bf16 right-hand tiles of probabilities, [chunk / 32, 2]."""

    @classmethod
    def reserve(cls, builder: Any, variant: PrefillVariant) -> "PrefillMemory":
        group, lanes = variant.group, BLOCK
        numbers = (
            (I16, group * lanes * variant.head_dim),
            (F32, group * lanes),
            (F32, group * lanes),
            (F32, group * lanes * variant.head_dim),
            (F32, CHUNK_TOKENS * lanes),
            (I16, CHUNK_TOKENS * lanes),
        )
        parts = [builder.alloca(element, size=index_constant(count)) for element, count in numbers]
        for part in parts:
            part.align = ROW_BYTES
        queries, peaks, masses, sums, scores, weights = parts
        return cls(queries, peaks, masses, sums, scores, weights)

    def of_head(self, builder: Any, head: Any, variant: PrefillVariant) -> "PrefillMemory":
        """The parts of a head of the group."""

        def own(part: Any, size: int) -> Any:
            return builder.gep(part, [builder.mul(head, index_constant(BLOCK * size))])

        return PrefillMemory(
            own(self.queries, variant.head_dim),
            own(self.peaks, 1),
            own(self.masses, 1),
            own(self.sums, variant.head_dim),
            self.scores,
            self.weights,
        )
