"""Attention of one new token per sequence to its KV cache, for CPUs: scores never leave the core.

`scaled_dot_product_attention` reads a bf16 cache at an eighth of the read ceiling on this kind of
machine, and copies pages first; this kernel reads them where they lie, at 80 % and more.
"""

import functools

import torch

from llmprof.engine.kernels.attention_code import (
    NUM_ARGUMENTS,
    attend_share,
    clear_partials,
    scratch_bytes,
)
from llmprof.engine.kernels.attention_variant import DecodeVariant
from llmprof.engine.kernels.kv_numbers import KV_DTYPE_NAMES
from llmprof.engine.kernels.launch import dtype_name, launch, observable
from llmprof.engine.kernels.native import NativeKernel, compile_kernel


@observable(
    "decode_attention",
    fake=lambda query, *_: query.new_empty(query.shape[0], query.shape[1] * query.shape[2]),
)
def decode_attention(
    query: torch.Tensor,
    store: torch.Tensor,
    scales: torch.Tensor | None,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    max_context: int,
    window: int | None = None,
    cap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Every row of queries against the tokens of its own sequence.

    Online softmax (Milakov and Gimelshein 2018) over tiles of 64 tokens, in float32. A KV head is
    read once for its whole group of query heads. The tokens of all sequences and KV heads are cut
    into equal shares for the threads (Dao et al. 2023, "Flash-Decoding"), however few there are.

    Args:
        query: [sequences, heads, head_dim], rows at any stride and dense within, on the CPU; fp32,
            bf16 or fp16.
        store: keys and values, [2, blocks, kv_heads, block_tokens, head_dim], contiguous; of the
            same dtype, or int8 or float8_e4m3fn.
        scales: for int8, float32 [2, blocks, kv_heads, block_tokens], contiguous.
        block_tables: int32 [sequences, width], the blocks of each sequence in order.
        context_lens: int32 [sequences], contiguous: tokens to attend to, at least one.
        max_context: the largest of them, or more: only decides how many threads start.
        window: each row sees its last so many tokens; None: all.
        cap: scores s become cap * tanh(s / cap); None: they stay.
        scale: of the products of queries and keys; None: 1 / sqrt(head_dim).

    Returns:
        [sequences, heads * head_dim], new.
    """
    sequences, heads, head_dim = query.shape
    _, blocks, kv_heads, block_tokens, _ = store.shape
    variant = DecodeVariant(
        dtype_name(query),
        KV_DTYPE_NAMES[store.dtype],
        kv_heads,
        heads // kv_heads,
        head_dim,
        block_tokens if block_tables.shape[1] > 1 else None,
        window,
        cap,
        scale,
    )
    seen = max_context if window is None else min(max_context, window)
    out = query.new_empty(sequences, heads * head_dim)
    launch(
        _kernel(variant, torch.get_num_threads()),
        2 * sequences * seen * kv_heads * head_dim * store.itemsize,
        query.data_ptr(),
        query.stride(0),
        store.data_ptr(),
        0 if scales is None else scales.data_ptr(),
        blocks,
        block_tokens,
        block_tables.data_ptr(),
        block_tables.stride(0),
        context_lens.data_ptr(),
        sequences,
        out.data_ptr(),
    )
    return out


@functools.cache
def _kernel(variant: DecodeVariant, threads: int) -> NativeKernel:
    return compile_kernel(
        f"decode_attention_{variant.kv_dtype}",
        NUM_ARGUMENTS,
        functools.partial(attend_share, variant=variant, threads=threads),
        prepare=functools.partial(clear_partials, threads=threads),
        scratch_bytes=scratch_bytes(variant, threads),
    )
