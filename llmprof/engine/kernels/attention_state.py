"""Online softmax (Milakov and Gimelshein 2018) of a group of query heads, in memory, as LLVM IR.

Over the tokens so far it holds, per head: the largest score (peak), the sum of probabilities
relative to it (mass), and the sum of values weighted by them. Scores are exponents of two.
"""

from dataclasses import dataclass
from typing import Any, Final

from llmprof.engine.kernels.attention_variant import DecodeVariant
from llmprof.engine.kernels.fp8 import FP16_SCALE
from llmprof.engine.kernels.vector_ir import VectorCode, index_constant
from llmprof.engine.kernels.vector_math import exp2, join_lanes, larger, scalar_of, shuffled

LEAST_SCORE: Final = -1e30
"""Of what is no token: finite, so that no difference of two is a NaN."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """[width] peaks, alike for all rows of a head; [width] masses, to be added up over rows; [group, head_dim] sums."""

    builder: Any
    variant: DecodeVariant
    pointer: Any
    """float*."""

    @property
    def scores_code(self) -> VectorCode:
        """For vectors of scores, [padded_group, rows]."""
        return VectorCode(self.builder, self.variant.width)

    @property
    def dims_code(self) -> VectorCode:
        """For vectors along head_dim."""
        return VectorCode(self.builder, self.variant.lanes)

    def clear(self) -> None:
        code, zero = self.dims_code, self.dims_code.splat(0.0)
        self._put_softmax(self.scores_code.splat(LEAST_SCORE), self.scores_code.splat(0.0))
        for head in range(self.variant.group):
            for vector in range(self._vectors):
                code.store(zero, self.pointer, self._sums(head, vector), "fp32")

    def move_peak(self, highest: Any) -> tuple[Any, Any]:
        """Raise the peaks to these scores: the new peaks, and what sums and masses decay by."""
        code = self.scores_code
        before = code.load(self.pointer, index_constant(0), "fp32")
        highest = join_lanes(code, highest, self.variant.rows, larger)
        peak = larger(code, highest, before)
        decay = exp2(code, self.builder.fsub(before, peak))
        mass = code.mul(code.load(self.pointer, self._masses, "fp32"), decay)
        self._put_softmax(peak, mass)
        return peak, decay

    def add_mass(self, mass: Any) -> None:
        code = self.scores_code
        total = code.add(code.load(self.pointer, self._masses, "fp32"), mass)
        code.store(total, self.pointer, self._masses, "fp32")

    def sums(self, slab: range, decay: Any) -> list[Any]:
        """The sums of a slab, head by head, after a decay [width]."""
        code = self.dims_code
        result = []
        for head, factor in enumerate(self._by_head(decay)):
            result += [
                code.mul(code.load(self.pointer, self._sums(head, vector), "fp32"), factor)
                for vector in slab
            ]
        return result

    def put_sums(self, slab: range, sums: list[Any]) -> None:
        places = [self._sums(head, n) for head in range(self.variant.group) for n in slab]
        for value, place in zip(sums, places, strict=True):
            self.dims_code.store(value, self.pointer, place, "fp32")

    def absorb(self, other: "GroupState") -> None:
        """Join what was found over other tokens of the same sequence."""
        code = self.scores_code
        peak, decay = self.move_peak(code.load(other.pointer, index_constant(0), "fp32"))
        their_peak = code.load(other.pointer, index_constant(0), "fp32")
        their_decay = exp2(code, self.builder.fsub(their_peak, peak))
        their_mass = code.load(other.pointer, self._masses, "fp32")
        self.add_mass(code.mul(their_mass, their_decay))
        for slab in self.variant.slabs:
            pairs = zip(self.sums(slab, decay), other.sums(slab, their_decay), strict=True)
            self.put_sums(slab, [code.add(ours, theirs) for ours, theirs in pairs])

    def write(self, out: Any) -> None:
        """The attended values, [group, head_dim], to a pointer of the variant's dtype."""
        code, variant = self.scores_code, self.variant
        mass = code.load(self.pointer, self._masses, "fp32")
        mass = join_lanes(code, mass, variant.rows, VectorCode.add)
        scale = FP16_SCALE if variant.kv_dtype == "fp8" else 1.0
        share = self.builder.fdiv(code.splat(scale), mass)
        every = range(self._vectors)
        values = self.sums(every, share)
        for head in range(variant.group):
            of_head = values[head * self._vectors :][: self._vectors]
            for nth, vector in enumerate(self._in_order(of_head)):
                place = index_constant(head * variant.head_dim + nth * variant.lanes)
                self.dims_code.store(vector, out, place, variant.dtype)

    @property
    def _vectors(self) -> int:
        return self.variant.head_dim // self.variant.lanes

    @property
    def _masses(self) -> Any:
        return index_constant(self.variant.width)

    def _sums(self, head: int, vector: int) -> Any:
        variant = self.variant
        first = 2 * variant.width + head * variant.head_dim
        return index_constant(first + vector * variant.lanes)

    def _put_softmax(self, peak: Any, mass: Any) -> None:
        self.scores_code.store(peak, self.pointer, index_constant(0), "fp32")
        self.scores_code.store(mass, self.pointer, self._masses, "fp32")

    def _by_head(self, vector: Any) -> list[Any]:
        """One lane of each head's rows, in every lane along head_dim."""
        variant = self.variant
        lanes = (
            scalar_of(self.scores_code, vector, h * variant.rows) for h in range(variant.group)
        )
        return [self.dims_code.broadcast(lane) for lane in lanes]

    def _in_order(self, vectors: list[Any]) -> list[Any]:
        """Undo what loading in pairs did to the order of numbers."""
        if not self.variant.paired:
            return vectors
        code, lanes = self.dims_code, self.variant.lanes
        ordered = []
        for even, odd in zip(vectors[::2], vectors[1::2], strict=True):
            zipped = [number for lane in range(lanes) for number in (lane, lanes + lane)]
            ordered += [
                shuffled(code, even, odd, zipped[:lanes]),
                shuffled(code, even, odd, zipped[lanes:]),
            ]
        return ordered
