"""Causal attention of many new tokens to all tokens of their sequences, for CPUs with AMX.

torch's fused kernel computes what the mask hides as well, one head after the other, and reaches a
tenth of the matmul ceiling on this kind of machine; `tests/benchmarks/prefill_ops.py` prints both.
"""

import functools
from typing import Final

import torch

from llmprof.engine.kernels import prefill_pack, prefill_tiles
from llmprof.engine.kernels.launch import launch, observable
from llmprof.engine.kernels.native import NativeKernel, compile_kernel
from llmprof.engine.kernels.prefill_memory import PrefillVariant
from llmprof.engine.kernels.prefill_pack import block_numbers, pack_blocks
from llmprof.engine.kernels.prefill_tiles import attend_blocks
from llmprof.engine.kernels.tile_blocks import BLOCK
from llmprof.engine.kernels.tiles import TILE_COLUMNS, tiles_available
from llmprof.engine.kernels.work_queue import QUEUE_BYTES, clear_queues

MOST_NUMBERS_PER_GROUP: Final = 4096
"""Heads that share a KV head, times their size: what a thread keeps of them lies on its stack."""


def prefill_attention_fits(dtype: torch.dtype, group: int, head_dim: int, new_tokens: int) -> bool:
    """Whether `prefill_attention` can do this on a CPU, with `group` query heads to a KV head."""
    return (
        dtype is torch.bfloat16
        and new_tokens >= BLOCK
        and head_dim % TILE_COLUMNS == 0
        and group * head_dim <= MOST_NUMBERS_PER_GROUP
        and tiles_available()
    )


@observable(
    "prefill_attention",
    fake=lambda query, *_: query.new_empty(query.shape[0], query.shape[1] * query.shape[2]),
)
def prefill_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """Attend from the last `rows / sequences` tokens of each sequence to all up to themselves.

    Online softmax (Milakov and Gimelshein 2018) in float32 over chunks of tokens; probabilities are
    rounded to bf16 before they weigh the values. Blocks that the causal mask hides are left out
    (Dao 2023, "FlashAttention-2", section 3.1).

    Args:
        query: [rows, heads, head_dim], bf16 on the CPU, rows at any stride and dense within: the
            new tokens of one sequence after those of the other, as many of each, such that
            `prefill_attention_fits`.
        keys: [sequences, kv_heads, tokens, head_dim], bf16, dense in the last dimension.
        values: with the shape and strides of `keys`.

    Returns:
        [rows, heads * head_dim], new.
    """
    rows, heads, head_dim = query.shape
    sequences, kv_heads, tokens, _ = keys.shape
    if keys.stride() != values.stride():
        keys, values = keys.contiguous(), values.contiguous()
    new_tokens = rows // sequences
    blocks = -(-tokens // BLOCK)
    packed = query.new_empty(sequences * kv_heads * blocks * block_numbers(head_dim))
    out = query.new_empty(rows, heads * head_dim)
    launch(
        _packer(head_dim),
        2 * packed.nbytes,
        packed.data_ptr(),
        keys.data_ptr(),
        values.data_ptr(),
        sequences,
        kv_heads,
        tokens,
        *keys.stride()[:3],
    )
    launch(
        _attender(PrefillVariant(kv_heads, heads // kv_heads, head_dim)),
        packed.nbytes + 2 * out.nbytes,
        query.data_ptr(),
        packed.data_ptr(),
        out.data_ptr(),
        sequences,
        new_tokens,
        tokens - new_tokens,
        query.stride(0),
    )
    return out


@functools.cache
def _packer(head_dim: int) -> NativeKernel:
    build = functools.partial(pack_blocks, head_dim=head_dim)
    return compile_kernel(f"prefill_pack_{head_dim}", prefill_pack.NUM_ARGUMENTS, build)


@functools.cache
def _attender(variant: PrefillVariant) -> NativeKernel:
    return compile_kernel(
        f"prefill_attention_{variant.head_dim}",
        prefill_tiles.NUM_ARGUMENTS,
        functools.partial(attend_blocks, variant=variant),
        prepare=clear_queues,
        scratch_bytes=QUEUE_BYTES,
    )
