"""Decode attention on one tile of tokens, in LLVM IR: scores, their softmax, weighted values.

For the query heads of a group, which share a KV head. The scores of a tile lie in a small buffer in
the first-level cache, [tokens / rows, padded_group, rows]: vectors of them are softened at once for
all heads.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from llmprof.engine.kernels.attention_state import LEAST_SCORE, GroupState
from llmprof.engine.kernels.attention_variant import TILE, DecodeVariant
from llmprof.engine.kernels.fp8 import FP16_SCALE, load_fp8
from llmprof.engine.kernels.vector_ir import I32, VectorCode, index_constant
from llmprof.engine.kernels.vector_math import LOG2_E, capped, exp2, join_all, larger, shuffled

_LINE_BYTES: Final = 64
_SECOND_LEVEL: Final = 2
"""The cache that is fetched into: it waits for more lines at once than the first one can."""
_UPPER_HALF: Final = 0xFFFF_0000


@dataclass(frozen=True, slots=True)
class Vectors:
    """Pointers to what is stored of adjacent tokens, all indexed by token."""

    keys: Any
    values: Any
    key_scales: Any
    value_scales: Any


@dataclass(frozen=True, slots=True)
class Segment:
    """Adjacent tokens [first, last) in one block."""

    first: Any
    last: Any
    here: Vectors
    ahead: Vectors
    """Of the tokens one tile further, under the indices of these: to be fetched early. The hardware's
    own prefetcher follows what is read now, and stops where a block or a page ends; so values are
    fetched while keys are read, and keys while values are: two streams at all times."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A few adjacent tokens of a segment. Beyond its end the last one stands for those missing."""

    tokens: Sequence[Any]
    count: Any | None
    """How many are real; None if all are."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Emits the work on tokens from `start` on."""

    builder: Any
    variant: DecodeVariant
    scores: Any
    """float*, `TILE * padded_group` of them."""
    start: Any
    first_seen: Any | None = None
    """The first token within a window, which may lie behind `start`; None: there is no window."""

    @property
    def _scores_code(self) -> VectorCode:
        return VectorCode(self.builder, self.variant.width)

    @property
    def _dims_code(self) -> VectorCode:
        return VectorCode(self.builder, self.variant.lanes)

    def clear(self) -> None:
        """Places that no token fills count for nothing."""
        code = self._scores_code
        for place in self._places():
            code.store(code.splat(LEAST_SCORE), self.scores, place, "fp32")

    def score(self, queries: list[list[Any]], segment: Segment) -> None:
        """Products of queries and keys, for all tokens of a segment."""

        def score(rows: Rows, _: Sequence[Any]) -> list[Any]:
            self._score_rows(queries, segment, rows)
            return []

        self._over_rows(segment, score)

    def soften(self, state: GroupState) -> Any:
        """Scores to probabilities relative to the new peak; what sums must decay by, [width]."""
        code = self._scores_code
        vectors = [code.load(self.scores, place, "fp32") for place in self._places()]
        peak, decay = state.move_peak(join_all(code, vectors, larger))
        powers = [exp2(code, self.builder.fsub(vector, peak)) for vector in vectors]
        for power, place in zip(powers, self._places(), strict=True):
            code.store(power, self.scores, place, "fp32")
        state.add_mass(join_all(code, powers, VectorCode.add))
        return decay

    def scale_values(self, segment: Segment) -> None:
        """Probabilities times the scales of the values that they are for (int8 only)."""
        code = self._scores_code

        def scale(rows: Rows, _: Sequence[Any]) -> list[Any]:
            place = self._place(rows)
            weights = code.load(self.scores, place, "fp32")
            weights = code.mul(weights, self._row_scales(segment.here.value_scales, rows))
            code.store(weights, self.scores, place, "fp32")
            return []

        self._over_rows(segment, scale)

    def add_values(self, slab: range, sums: Sequence[Any], segment: Segment) -> list[Any]:
        """A slab's sums with the values of a segment, weighted by the probabilities."""

        def add(rows: Rows, carried: Sequence[Any]) -> list[Any]:
            return self._add_rows(slab, carried, segment, rows)

        return self._over_rows(segment, add, sums)

    def _over_rows(
        self,
        segment: Segment,
        emit: Callable[[Rows, Sequence[Any]], list[Any]],
        carried: Sequence[Any] = (),
    ) -> list[Any]:
        """Work on all rows of a segment: as many whole ones as there are, then those that are left."""
        builder, code, step = self.builder, self._dims_code, self.variant.rows
        count = builder.sub(segment.last, segment.first)
        rest = builder.and_(count, index_constant(step - 1))
        whole = builder.sub(segment.last, rest)
        with code.loop(segment.first, whole, step, carried) as loop:
            loop.carried[:] = emit(self._rows(loop.index), loop.carried)
        if step == 1:
            return loop.results
        with code.loop(whole, segment.last, step, loop.results) as once:
            rows = self._last_rows(segment, whole, rest)
            once.carried[:] = emit(rows, once.carried)
        return once.results

    def _score_rows(self, queries: list[list[Any]], segment: Segment, rows: Rows) -> None:
        code, variant = self._dims_code, self.variant
        products = [[code.splat(0.0)] * variant.rows for _ in queries]
        every = range(variant.head_dim // variant.lanes)
        for row, token in enumerate(rows.tokens):
            self._fetch_row(segment.ahead.values, token)
            for nth, key in enumerate(self._numbers(segment.here.keys, token, every)):
                for head, query in enumerate(queries):
                    products[head][row] = code.fma(query[nth], key, products[head][row])
        scores = code.sums([product for of_head in products for product in of_head])
        if variant.kv_dtype == "int8":
            for scales in (segment.ahead.key_scales, segment.ahead.value_scales):
                code.prefetch(scales, rows.tokens[0], _SECOND_LEVEL)
            scores = self._scores_code.mul(scores, self._row_scales(segment.here.key_scales, rows))
        if variant.cap is not None:
            scores = capped(self._scores_code, scores, variant.cap * LOG2_E)
        if rows.count is not None:
            scores = self._hide(scores, rows.count)
        if self.first_seen is not None:
            scores = self._hide_before(scores, self.builder.sub(self.first_seen, rows.tokens[0]))
        self._scores_code.store(scores, self.scores, self._place(rows), "fp32")

    def _add_rows(
        self, slab: range, sums: Sequence[Any], segment: Segment, rows: Rows
    ) -> list[Any]:
        builder, code, variant = self.builder, self._dims_code, self.variant
        sums = list(sums)
        place = self._place(rows)
        for row, token in enumerate(rows.tokens):
            if slab.start == 0:
                self._fetch_row(segment.ahead.keys, token)
            values = self._numbers(segment.here.values, token, slab)
            for head in range(variant.group):
                at = builder.add(place, index_constant(head * variant.rows + row))
                factor = code.broadcast(builder.load(builder.gep(self.scores, [at])))
                for nth, value in enumerate(values, start=head * len(values)):
                    sums[nth] = code.fma(value, factor, sums[nth])
        return sums

    def _numbers(self, pointer: Any, token: Any, vectors: range) -> list[Any]:
        first = self.builder.mul(token, index_constant(self.variant.head_dim))
        return load_numbers(self._dims_code, pointer, first, vectors, self.variant)

    def _rows(self, first: Any) -> Rows:
        tokens = [self.builder.add(first, index_constant(n)) for n in range(self.variant.rows)]
        return Rows(tokens, None)

    def _last_rows(self, segment: Segment, first: Any, count: Any) -> Rows:
        builder = self.builder
        last = builder.sub(segment.last, index_constant(1))
        tokens = [
            builder.select(builder.icmp_signed("<", token, last), token, last)
            for token in self._rows(first).tokens
        ]
        return Rows(tokens, count)

    def _place(self, rows: Rows) -> Any:
        """Of rows in the buffer."""
        column = self.builder.sub(rows.tokens[0], self.start)
        return self.builder.mul(column, index_constant(self.variant.padded_group))

    def _places(self) -> list[Any]:
        width = self.variant.width
        return [index_constant(at) for at in range(0, TILE * self.variant.padded_group, width)]

    def _row_scales(self, scales: Any, rows: Rows) -> Any:
        """[padded_group, rows]: the scale of each token's key, for every head."""
        builder, variant = self.builder, self.variant
        some = VectorCode(builder, variant.rows)
        if rows.count is None:
            loaded = some.load(scales, rows.tokens[0], "fp32")
        else:
            loaded = some.splat(0.0)
            for row, token in enumerate(rows.tokens):
                scale = builder.load(builder.gep(scales, [token]))
                loaded = builder.insert_element(loaded, scale, ir.Constant(I32, row))
        return shuffled(some, loaded, loaded, list(range(variant.rows)) * variant.padded_group)

    def _hide(self, scores: Any, count: Any) -> Any:
        """Rows that stand for missing tokens."""
        builder, variant, code = self.builder, self.variant, self._scores_code
        row = ir.Constant(code.vector_of(I32), list(range(variant.rows)) * variant.padded_group)
        real = builder.icmp_signed("<", row, code.broadcast(builder.trunc(count, I32)))
        return builder.select(real, scores, code.splat(LEAST_SCORE))

    def _hide_before(self, scores: Any, count: Any) -> Any:
        """The first `count` rows, which lie before the window."""
        builder, variant, code = self.builder, self.variant, self._scores_code
        row = ir.Constant(code.vector_of(I32), list(range(variant.rows)) * variant.padded_group)
        seen = builder.icmp_signed(">=", row, code.broadcast(builder.trunc(count, I32)))
        return builder.select(seen, scores, code.splat(LEAST_SCORE))

    def _fetch_row(self, ahead: Any, token: Any) -> None:
        variant = self.variant
        first = self.builder.mul(token, index_constant(variant.head_dim))
        for dim in range(0, variant.head_dim, _LINE_BYTES // variant.kv_bytes):
            place = self.builder.add(first, index_constant(dim))
            self._dims_code.prefetch(ahead, place, _SECOND_LEVEL)


def load_queries(code: VectorCode, pointer: Any, variant: DecodeVariant) -> list[list[Any]]:
    """The vectors of each head of a group, times what makes 2^score the softmax's exponential."""
    scale = LOG2_E * (1 / math.sqrt(variant.head_dim) if variant.scale is None else variant.scale)
    if variant.cap is not None:
        scale *= 2 / variant.cap
    if variant.kv_dtype == "fp8":
        scale *= FP16_SCALE
    every = range(variant.head_dim // variant.lanes)
    queries = []
    for head in range(variant.group):
        first = index_constant(head * variant.head_dim)
        if variant.paired:
            vectors = _load_pairs(code, pointer, first, every)
        else:
            vectors = [
                code.load(pointer, _further(code, first, n * code.lanes), variant.dtype)
                for n in every
            ]
        queries.append([code.mul(vector, code.splat(scale)) for vector in vectors])
    return queries


def load_numbers(
    code: VectorCode, pointer: Any, first: Any, vectors: range, variant: DecodeVariant
) -> list[Any]:
    """Some vectors of a row of stored keys or values as float32: int8 without its scale, fp8 without `FP16_SCALE`."""
    if variant.paired:
        return _load_pairs(code, pointer, first, vectors)
    places = [_further(code, first, n * code.lanes) for n in vectors]
    if variant.kv_dtype == "fp8":
        return [load_fp8(code, pointer, place) for place in places]
    return [code.load(pointer, place, variant.kv_dtype) for place in places]


def _load_pairs(code: VectorCode, pointer: Any, first: Any, vectors: range) -> list[Any]:
    """bf16 in pairs, as 32-bit integers: the even numbers of a stretch of 2 vectors, then the odd."""
    builder = code.builder
    numbers = []
    for n in vectors[::2]:
        address = builder.gep(pointer, [_further(code, first, n * code.lanes)])
        pairs = builder.load(builder.bitcast(address, code.vector_of(I32).as_pointer()))
        pairs.align = 2
        odd = builder.and_(pairs, code.splat_bits(_UPPER_HALF))
        numbers += [code.bits_to_f32(code.shift_left(pairs, 16)), code.bits_to_f32(odd)]
    return numbers


def _further(code: VectorCode, index: Any, by: int) -> Any:
    return code.builder.add(index, index_constant(by))
