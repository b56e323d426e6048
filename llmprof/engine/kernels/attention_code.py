"""The loop nest of decode attention in LLVM IR: who attends to what, and how shares are joined.

All tokens of all sequences and KV heads lie on one line, sequence by sequence and head by head. It
is cut into equal shares, one per thread. A (sequence, KV head) that a cut goes through leaves
partial results in scratch memory; the thread that finishes last joins them. What happens to a tile
of tokens is in `attention_tile`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from llmprof.engine.kernels.attention_state import GroupState
from llmprof.engine.kernels.attention_tile import Segment, Tile, Vectors, load_queries
from llmprof.engine.kernels.attention_variant import TILE, DecodeVariant
from llmprof.engine.kernels.kv_numbers import KV_ELEMENTS
from llmprof.engine.kernels.native import KernelBody
from llmprof.engine.kernels.vector_ir import (
    F32,
    I32,
    I64,
    STORED_TYPES,
    Loop,
    VectorCode,
    index_constant,
)

(
    _QUERY,
    _QUERY_STRIDE,
    _STORE,
    _SCALES,
    _BLOCKS,
    _BLOCK_TOKENS,
    _TABLES,
    _TABLE_STRIDE,
    _LENGTHS,
    _SEQUENCES,
    _OUT,
    NUM_ARGUMENTS,
) = range(12)

_STATES_PER_THREAD: Final = 3
"""Of a (sequence, KV head) that an earlier thread began, of one that later threads go on with, and
of whole ones."""
_CONTINUED, _CUT, _WHOLE = range(_STATES_PER_THREAD)

_ALIGNED: Final = 16
"""Cuts go before every so many tokens of a sequence: whole rows, and whole or half blocks."""

_FINISHED: Final = 0
"""The first 64-bit word of scratch memory counts the threads that are done; then come three words
for each thread: where its cut one lies, and the last thread that works on it (or -1)."""
_WORDS_PER_THREAD: Final = 3
_SEQUENCE, _HEAD, _LAST = range(1, 1 + _WORDS_PER_THREAD)


def scratch_bytes(variant: DecodeVariant, threads: int) -> int:
    states = threads * _STATES_PER_THREAD * variant.state_floats * 4
    return _header_bytes(threads) + states


def _header_bytes(threads: int) -> int:
    words = 1 + threads * _WORDS_PER_THREAD
    return -(-words * 8 // 64) * 64


def clear_partials(body: KernelBody, *, threads: int) -> None:
    """No thread is done, and none has cut anything."""
    words = body.pointer(body.scratch_slot, I64)
    for word in range(1 + threads * _WORDS_PER_THREAD):
        value = 0 if word == _FINISHED else -1
        body.builder.store(index_constant(value), body.builder.gep(words, [index_constant(word)]))


def attend_share(body: KernelBody, *, variant: DecodeVariant, threads: int) -> None:
    """One thread's share of the line."""
    _Share(body, variant, threads).attend()


class _Share:
    def __init__(self, body: KernelBody, variant: DecodeVariant, threads: int) -> None:
        builder = body.builder
        self._body = body
        self._builder = builder
        self._variant = variant
        self._code = VectorCode(builder)
        self._store = body.pointer(_STORE, KV_ELEMENTS[variant.kv_dtype])
        self._scales = body.pointer(_SCALES, F32)
        self._words = body.pointer(body.scratch_slot, I64)
        states = builder.add(
            body.integer(body.scratch_slot), index_constant(_header_bytes(threads))
        )
        self._states = builder.inttoptr(states, F32.as_pointer())
        self._scores = builder.alloca(F32, TILE * variant.padded_group)
        self._block_tokens = (
            body.integer(_BLOCK_TOKENS)
            if variant.block_tokens is None
            else index_constant(variant.block_tokens)
        )

    def attend(self) -> None:
        """Work on this thread's part of the line, then join what was cut if the others are done."""
        builder, thread = self._builder, self._body.thread
        line = self._line()
        workers = self._smaller(self._body.threads, line)
        begin, end = self._part(line, workers)
        self._state(thread, index_constant(_CONTINUED)).clear()
        with self._each_head() as (sequence, head, first, length):
            lower, upper = (self._aligned(builder.sub(cut, first), length) for cut in (begin, end))
            with builder.if_then(builder.icmp_signed("<", lower, upper)):
                begun = builder.icmp_signed(">", lower, index_constant(0))
                ended = builder.icmp_signed("==", upper, length)
                kind = builder.select(ended, index_constant(_WHOLE), index_constant(_CUT))
                kind = builder.select(begun, index_constant(_CONTINUED), kind)
                state = self._state(thread, kind)
                self._attend_to(state, sequence, head, lower, upper)
                with builder.if_then(builder.icmp_signed("==", kind, index_constant(_WHOLE))):
                    state.write(self._output(sequence, head))
                with builder.if_then(builder.icmp_signed("==", kind, index_constant(_CUT))):
                    last = self._worker_at(builder.add(first, length), line, workers)
                    for word, value in ((_SEQUENCE, sequence), (_HEAD, head), (_LAST, last)):
                        builder.store(value, self._word(thread, word))
        self._join_if_last()

    @property
    def _passes(self) -> Any:
        """Over the tokens of a sequence: one or more per KV head."""
        return index_constant(self._variant.kv_heads * self._variant.parts)

    def _line(self) -> Any:
        """How many tokens there are, those of every pass over a KV head."""
        sequences = self._body.integer(_SEQUENCES)
        zero = index_constant(0)
        with self._code.loop(zero, sequences, 1, [zero]) as loop:
            loop.carried[0] = self._builder.add(loop.carried[0], self._visited(loop.index))
        return self._builder.mul(loop.results[0], self._passes)

    def _part(self, line: Any, workers: Any) -> tuple[Any, Any]:
        """This thread's part [begin, end): not empty for each worker, empty for all others."""
        builder = self._builder
        thread = self._smaller(self._body.thread, workers)
        following = self._smaller(builder.add(thread, index_constant(1)), workers)
        begin, end = (builder.udiv(builder.mul(line, n), workers) for n in (thread, following))
        return begin, end

    def _aligned(self, cut: Any, length: Any) -> Any:
        """A cut of a sequence, moved up to the next place where cuts may go, within the sequence."""
        builder = self._builder
        cut = self._smaller(self._larger(cut, index_constant(0)), length)
        moved = builder.add(cut, index_constant(_ALIGNED - 1))
        return self._smaller(builder.and_(moved, index_constant(-_ALIGNED)), length)

    def _worker_at(self, end: Any, line: Any, workers: Any) -> Any:
        """Whose part holds the token before `end`: the last w with line * w / workers < end."""
        builder = self._builder
        rounded_up = builder.add(builder.mul(end, workers), builder.sub(line, index_constant(1)))
        return builder.sub(builder.udiv(rounded_up, line), index_constant(1))

    @contextmanager
    def _each_head(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Loop over sequences and passes: both indices, place on the line, and context length."""
        builder, code, zero = self._builder, self._code, index_constant(0)
        sequences, heads = self._body.integer(_SEQUENCES), self._passes
        with code.loop(zero, sequences, 1, [zero]) as outer:
            length = self._visited(outer.index)
            with code.loop(zero, heads, 1, [outer.carried[0]]) as inner:
                yield outer.index, inner.index, inner.carried[0], length
                inner.carried[0] = builder.add(inner.carried[0], length)
            outer.carried[0] = inner.results[0]

    def _attend_to(
        self, state: GroupState, sequence: Any, head: Any, lower: Any, upper: Any
    ) -> None:
        """Tokens lower ... upper - 1 of one sequence and pass into `state`, tile by tile."""
        builder, variant = self._builder, self._variant
        state.clear()
        queries = load_queries(state.dims_code, self._queries(sequence, head), variant)
        skipped = self._skipped(sequence)
        lower, upper = builder.add(lower, skipped), builder.add(upper, skipped)
        with self._code.loop(lower, upper, TILE) as tiles:
            stop = self._smaller(builder.add(tiles.index, index_constant(TILE)), upper)
            place = sequence, head, tiles.index, stop, upper
            seen = None if variant.window is None else self._first_seen(sequence)
            tile = Tile(builder, variant, self._scores, tiles.index, seen)
            tile.clear()
            with self._segments(*place) as (segment, _):
                tile.score(queries, segment)
            decay = tile.soften(state)
            if variant.kv_dtype == "int8":
                with self._segments(*place) as (segment, _):
                    tile.scale_values(segment)
            for slab in variant.slabs:
                with self._segments(*place, state.sums(slab, decay)) as (segment, loop):
                    loop.carried[:] = tile.add_values(slab, loop.carried, segment)
                state.put_sums(slab, loop.results)

    @contextmanager
    def _segments(
        self,
        sequence: Any,
        head: Any,
        start: Any,
        stop: Any,
        limit: Any,
        carried: Sequence[Any] = (),
    ) -> Iterator[tuple[Segment, Loop]]:
        """Loop over the pieces that hold tokens start ... stop - 1, which are followed up to `limit`."""
        builder, piece = self._builder, self._variant.piece_tokens
        if piece is None:
            first_piece, end_piece, size = index_constant(0), index_constant(1), stop
        else:
            size = index_constant(piece)
            first_piece = builder.udiv(start, size)
            last = builder.udiv(builder.sub(stop, index_constant(1)), size)
            end_piece = builder.add(last, index_constant(1))
        with self._code.loop(first_piece, end_piece, 1, carried) as loop:
            piece_begin = builder.mul(loop.index, size)
            first = self._larger(start, piece_begin)
            last = self._smaller(stop, builder.add(piece_begin, size))
            further = builder.add(first, index_constant(TILE))
            further = self._smaller(further, builder.sub(limit, index_constant(1)))
            here, ahead = (
                self._row_zero(sequence, head, self._block_of(token)) for token in (first, further)
            )
            ahead = builder.add(ahead, index_constant(TILE))
            yield Segment(first, last, self._vectors(here), self._vectors(ahead)), loop

    def _block_of(self, token: Any) -> Any:
        if self._variant.block_tokens is None:
            return index_constant(0)
        return self._builder.udiv(token, self._block_tokens)

    def _row_zero(self, sequence: Any, head: Any, block: Any) -> Any:
        """Where token 0 would lie if all tokens lay as those of a block do, in vectors of head_dim."""
        builder, body = self._builder, self._body
        row = builder.mul(sequence, body.integer(_TABLE_STRIDE))
        entry = builder.gep(body.pointer(_TABLES, I32), [builder.add(row, block)])
        number = builder.sext(builder.load(entry), I64)
        kv_head = builder.udiv(head, index_constant(self._variant.parts))
        plane = builder.add(builder.mul(number, index_constant(self._variant.kv_heads)), kv_head)
        return builder.mul(builder.sub(plane, block), self._block_tokens)

    def _vectors(self, row_zero: Any) -> Vectors:
        builder, variant = self._builder, self._variant
        planes = builder.mul(self._body.integer(_BLOCKS), index_constant(variant.kv_heads))
        rows = row_zero, builder.add(row_zero, builder.mul(planes, self._block_tokens))
        keys, values = (
            builder.gep(self._store, [builder.mul(row, index_constant(variant.head_dim))])
            for row in rows
        )
        key_scales, value_scales = (builder.gep(self._scales, [row]) for row in rows)
        return Vectors(keys, values, key_scales, value_scales)

    def _join_if_last(self) -> None:
        """The thread that finishes last adds up the parts of everything that was cut."""
        builder, threads = self._builder, self._body.threads
        done = builder.gep(self._words, [index_constant(_FINISHED)])
        before = builder.atomic_rmw("add", done, index_constant(1), "acq_rel")
        is_last = builder.icmp_signed("==", before, builder.sub(threads, index_constant(1)))
        with (
            builder.if_then(is_last),
            self._code.loop(index_constant(0), threads, 1) as loop,
        ):
            last = builder.load(self._word(loop.index, _LAST))
            with builder.if_then(builder.icmp_signed(">", last, loop.index)):
                self._join(loop.index, last)

    def _join(self, thread: Any, last: Any) -> None:
        builder = self._builder
        state = self._state(thread, index_constant(_CUT))
        following, end = (builder.add(n, index_constant(1)) for n in (thread, last))
        with self._code.loop(following, end, 1) as others:
            state.absorb(self._state(others.index, index_constant(_CONTINUED)))
        place = (builder.load(self._word(thread, word)) for word in (_SEQUENCE, _HEAD))
        state.write(self._output(*place))

    def _state(self, thread: Any, kind: Any) -> GroupState:
        builder = self._builder
        nth = builder.add(builder.mul(thread, index_constant(_STATES_PER_THREAD)), kind)
        offset = builder.mul(nth, index_constant(self._variant.state_floats))
        return GroupState(builder, self._variant, builder.gep(self._states, [offset]))

    def _word(self, thread: Any, word: int) -> Any:
        builder = self._builder
        first = builder.mul(thread, index_constant(_WORDS_PER_THREAD))
        return builder.gep(self._words, [builder.add(first, index_constant(word))])

    def _queries(self, sequence: Any, head: Any) -> Any:
        builder, body = self._builder, self._body
        row = builder.mul(sequence, body.integer(_QUERY_STRIDE))
        query = body.pointer(_QUERY, STORED_TYPES[self._variant.dtype])
        return builder.gep(query, [builder.add(row, self._first_dim(head))])

    def _output(self, sequence: Any, head: Any) -> Any:
        builder, variant = self._builder, self._variant
        width = variant.kv_heads * variant.heads_per_kv_head * variant.head_dim
        row = builder.mul(sequence, index_constant(width))
        out = self._body.pointer(_OUT, STORED_TYPES[variant.dtype])
        return builder.gep(out, [builder.add(row, self._first_dim(head))])

    def _first_dim(self, head: Any) -> Any:
        """Of a pass's query heads, in a row of queries or of output."""
        variant = self._variant
        return self._builder.mul(head, index_constant(variant.group * variant.head_dim))

    def _length(self, sequence: Any) -> Any:
        lengths = self._body.pointer(_LENGTHS, I32)
        return self._builder.sext(self._builder.load(self._builder.gep(lengths, [sequence])), I64)

    def _first_seen(self, sequence: Any) -> Any:
        """The first token within the window, of a variant that has one."""
        window = index_constant(self._variant.window or 0)
        return self._larger(self._builder.sub(self._length(sequence), window), index_constant(0))

    def _skipped(self, sequence: Any) -> Any:
        """Tokens before the window, down to a place where cuts may go."""
        if self._variant.window is None:
            return index_constant(0)
        return self._builder.and_(self._first_seen(sequence), index_constant(-_ALIGNED))

    def _visited(self, sequence: Any) -> Any:
        """Tokens of a sequence that lie on the line."""
        length = self._length(sequence)
        if self._variant.window is None:
            return length
        return self._builder.sub(length, self._skipped(sequence))

    def _smaller(self, a: Any, b: Any) -> Any:
        return self._builder.select(self._builder.icmp_signed("<", a, b), a, b)

    def _larger(self, a: Any, b: Any) -> Any:
        return self._builder.select(self._builder.icmp_signed(">", a, b), a, b)
