"""Inside a kernel: some rows of queries against one tile of tokens, wherever their blocks lie.

Online softmax (Milakov and Gimelshein 2018; Dao et al. 2022), in float32, on tensor cores.
"""

import triton
import triton.language as tl

from llmprof.engine.kernels.triton.weight_codes import fp8_numbers, int8_codes


@triton.jit
def vectors_of(token, valid, table, head, kv_heads, block_tokens):  # type: ignore[no-untyped-def]
    """Where tokens of a sequence are in the store, counted in vectors of head_dim; int64."""
    block = tl.load(table + token // block_tokens, valid, other=0).to(tl.int64)
    return (block * kv_heads + head) * block_tokens + token % block_tokens


@triton.jit  # type: ignore[untyped-decorator]
def _numbers(  # type: ignore[no-untyped-def]
    pointers,
    inside,
    dtype: tl.constexpr,
    is_int8: tl.constexpr,
    is_fp8: tl.constexpr,
    native_fp8: tl.constexpr,
):
    """Stored keys or values in the dtype of the query: codes of int8 and fp8 are exact in 16 bits."""
    numbers = tl.load(pointers, inside, other=0)
    if is_int8:
        numbers = int8_codes(numbers).to(dtype)
    if is_fp8:
        numbers = fp8_numbers(numbers, native_fp8).to(dtype)
    return numbers


@triton.jit  # type: ignore[untyped-decorator]
def attend_tile(  # type: ignore[no-untyped-def]
    query,
    visible,
    valid,
    vector,
    store,
    scales,
    value_plane,
    peak,
    mass,
    sums,
    head_dim,
    scale,
    cap,
    dims: tl.constexpr,
    is_int8: tl.constexpr,
    is_fp8: tl.constexpr,
    native_fp8: tl.constexpr,
):
    """Take a tile into account.

    Args:
        query: [rows, dims].
        visible: [rows, tokens]: which query sees which token.
        valid: [tokens]: which tokens exist.
        vector: [tokens], of the keys; `value_plane` vectors later are the values.
        store: numbers, uint8 where they are codes.
        scales: of int8, one per vector.
        value_plane: vectors of head_dim in the keys of the whole store.
        peak: [rows], largest score so far; -inf where a row has seen none.
        mass: [rows], sum of the weights relative to it.
        sums: [rows, dims], of values times weights.
        head_dim: numbers of a vector.
        scale: of the products.
        cap: 0, or scores s become cap * tanh(s / cap).
        dims: `head_dim` rounded up to a power of two.
        is_int8: what the store holds.
        is_fp8: likewise.
        native_fp8: see `weight_codes.fp8_numbers`.

    Returns:
        peak, mass and sums with this tile.
    """
    dim = tl.arange(0, dims)
    inside = (dim < head_dim)[:, None] & valid[None, :]
    keys = _numbers(
        store + vector[None, :] * head_dim + dim[:, None],
        inside,
        query.dtype,
        is_int8,
        is_fp8,
        native_fp8,
    )
    scores = tl.dot(query, keys, input_precision="ieee") * scale
    if is_int8:
        scores *= tl.load(scales + vector, valid, other=0.0)[None, :]
    if cap > 0:
        # tanh(z) = 1 - 2 / (exp(2 z) + 1), right at both ends
        scores = cap - 2.0 * cap / (tl.exp(scores * (2.0 / cap)) + 1.0)
    scores = tl.where(visible, scores, -float("inf"))
    higher = tl.maximum(peak, tl.max(scores, axis=1))
    # a row that has seen no token yet has no peak: its sums are zero whatever they decay by
    finite = tl.where(higher == -float("inf"), 0.0, higher)
    decay = tl.exp(peak - finite)
    weights = tl.exp(scores - finite[:, None])
    mass = mass * decay + tl.sum(weights, axis=1)
    inside = valid[:, None] & (dim < head_dim)[None, :]
    values = _numbers(
        store + (vector + value_plane)[:, None] * head_dim + dim[None, :],
        inside,
        query.dtype,
        is_int8,
        is_fp8,
        native_fp8,
    )
    if is_int8:
        weights *= tl.load(scales + value_plane + vector, valid, other=0.0)[None, :]
    sums = sums * decay[:, None]
    sums += tl.dot(weights.to(query.dtype), values, input_precision="ieee")
    return higher, mass, sums
