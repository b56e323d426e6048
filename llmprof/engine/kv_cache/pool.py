"""The store of a KV cache: blocks of tokens, which block tables put in order.

A contiguous cache is the same store with one block per sequence, as long as the longest one.
"""

from collections.abc import Callable
from typing import Final

import torch

from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.options import kv_bytes_per_number
from llmprof.engine.kernels.fused import fused_kernels, runs_fused
from llmprof.engine.kernels.kv_append import kv_append_
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.memory import huge_zeros
from llmprof.engine.kernels.pointwise import gpu_kernels
from llmprof.engine.kv_cache.base import new_keys_values
from llmprof.engine.kv_cache.formats import STORED_DTYPES, quantize_int8, to_fp8
from llmprof.engine.norm import HeadNorm
from llmprof.engine.step_batch import SequenceRun, StepBatch
from llmprof.schema.model import ModelConfig

_K_AND_V: Final = 2
AppendKernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor], None]
"""See `kernels.kv_append.kv_append_`."""


class KvPool:
    """[layers, K and V, blocks, kv_heads, block_tokens, head_dim], each block filled in order.

    Tokens of one head lie side by side within a block. int8 numbers have one float32 scale per
    token, head and K or V, in a store beside it without the last dimension; fp8 numbers have none.
    """

    appends = True
    turn_kernel: Final = "llmprof.triton_turn_append_"
    """What `turn_and_append` runs."""

    def __init__(
        self,
        model: ModelConfig,
        *,
        num_blocks: int,
        block_tokens: int,
        kv_dtype: str,
        dtype: torch.dtype,
        device: str,
        own_kernel: bool | None = None,
        scratch: bool = False,
    ) -> None:
        """Reserve everything at once.

        Args:
            model: its layers, KV heads and head_dim.
            num_blocks: of all sequences together.
            block_tokens: tokens in a block.
            kv_dtype: stored dtype: that of the model (fp32, bf16, fp16), int8 or fp8.
            dtype: of the keys and values that are appended and read.
            device: `cpu` or `cuda:N`.
            own_kernel: append by a kernel of ours instead of by torch's indexing; by default where
                there is one that can.
            scratch: one block more, which no table holds: padding writes there.
        """
        layers, heads = model.num_hidden_layers, model.num_key_value_heads
        vectors = (layers, _K_AND_V, num_blocks + scratch, heads, block_tokens)
        stored = STORED_DTYPES[kv_dtype]
        self._store = _zeros((*vectors, model.head_dim), stored, device)
        self._scales = torch.zeros(vectors, device=device) if kv_dtype == "int8" else None
        self._layers = self._store.unbind(0)
        self._scale_layers = () if self._scales is None else self._scales.unbind(0)
        self._dtype = dtype
        self._append_kernel = None if own_kernel is False else _find_append_kernel(device)
        self.turns = self._append_kernel is not None and runs_fused(device)
        self._new: torch.Tensor | None = None
        self._targets: tuple[torch.Tensor, ...] = ()
        self._rows: torch.Tensor | None = None
        self._gathered_rows: dict[SequenceRun, torch.Tensor] = {}
        self.num_blocks = num_blocks
        self.scratch_block = num_blocks if scratch else None
        self.block_tokens = block_tokens
        self.bytes_reserved = self._store.nbytes
        if self._scales is not None:
            self.bytes_reserved += self._scales.nbytes
        number = kv_bytes_per_number(kv_dtype, model.head_dim)
        self.bytes_per_token = kv_bytes_per_token(model, number)

    def stored(self, layer: int) -> torch.Tensor:
        """Numbers of a layer, [2, blocks, kv_heads, block_tokens, head_dim]."""
        return self._layers[layer]

    def scales(self, layer: int) -> torch.Tensor | None:
        """Scales of a layer, [2, blocks, kv_heads, block_tokens] float32; None unless int8."""
        return self._scale_layers[layer] if self._scale_layers else None

    def begin_step(self, step: StepBatch) -> None:
        self._gathered_rows.clear()
        self._targets, self._rows = (), None
        if self._append_kernel is not None:
            return
        run = step.runs[0]
        alike = len(step.runs) == 1 and run.same_context
        if alike and run.first_block is not None and self.keeps_dtype:
            part = self._store.narrow(2, run.first_block, run.num_sequences)
            part = part.narrow(4, run.cached_tokens, run.new_tokens)
            # [layers, 2, sequences, kv_heads, new, head_dim] -> [sequences, new, 2, kv_heads, head_dim]
            self._targets = part.permute(0, 2, 4, 1, 3, 5).unbind(0)
        else:
            slots = step.slots.long()
            blocks, offsets = slots // self.block_tokens, slots % self.block_tokens
            self._rows = self._vector(blocks) + offsets.view(-1, 1, 1)

    @property
    def append_kernel(self) -> str:
        """What `append` runs."""
        if self._append_kernel is None:
            return "torch.Tensor.index_put_"
        on_cpu = self._append_kernel is kv_append_
        return "llmprof.kv_append_" if on_cpu else "llmprof.triton_kv_append_"

    @property
    def keeps_dtype(self) -> bool:
        """Stored as it is appended: no conversion on either side."""
        return self._store.dtype is self._dtype

    def _vector(self, blocks: torch.Tensor) -> torch.Tensor:
        """Where block numbers [n] start, counted in vectors of head_dim: [n, 2, kv_heads]."""
        _, _, num_blocks, heads, block_tokens, _ = self._store.shape
        by_head = torch.arange(heads, device=blocks.device)
        by_kind = torch.arange(_K_AND_V, device=blocks.device) * num_blocks * heads
        parts = blocks.view(-1, 1, 1) * heads + by_kind.view(1, -1, 1) + by_head
        return parts * block_tokens

    def append(self, layer: int, keys_values: torch.Tensor, step: StepBatch) -> None:
        if not torch.compiler.is_compiling():  # a decode step never reads them again
            self._new = keys_values
        if self._append_kernel is not None:
            self._append_kernel(keys_values, self._layers[layer], self.scales(layer), step.slots)
        elif self._rows is None:
            target = self._targets[layer]
            target.copy_(keys_values.view(*target.shape))
        else:
            self._append_vectors(layer, keys_values, self._rows)

    def turn_and_append(
        self,
        layer: int,
        heads: torch.Tensor,
        norm: HeadNorm | None,
        tables: tuple[torch.Tensor, torch.Tensor],
        step: StepBatch,
    ) -> None:
        kv_heads, head_dim = self._store.shape[3], self._store.shape[5]
        new = heads.narrow(1, heads.shape[1] - _K_AND_V * kv_heads, _K_AND_V * kv_heads)
        self._new = new.view(-1, _K_AND_V, kv_heads, head_dim)
        gains, eps, offset = (
            (None, 0.0, 0.0) if norm is None else (norm.gains, norm.eps, norm.offset)
        )
        store, scales = self._layers[layer], self.scales(layer)
        fused_kernels().turn_append_(heads, gains, eps, offset, *tables, store, scales, step.slots)

    def _append_vectors(self, layer: int, keys_values: torch.Tensor, rows: torch.Tensor) -> None:
        """`rows`: where each vector of head_dim numbers goes, [rows, 2, kv_heads]."""
        vectors = self._layers[layer].view(-1, self._store.shape[-1])
        if self._scale_layers:
            keys_values, scales = quantize_int8(keys_values)
            self._scale_layers[layer].view(-1)[rows] = scales
        elif not self.keeps_dtype:
            # indexing knows no fp8, so its bytes are moved
            keys_values, vectors = to_fp8(keys_values).view(torch.uint8), vectors.view(torch.uint8)
        vectors[rows] = keys_values

    def read(
        self, layer: int, run: SequenceRun, step: StepBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if run.first_block is not None and self.keeps_dtype:
            part = self._layers[layer].narrow(1, run.first_block, run.num_sequences)
            part = part.narrow(3, 0, run.attended_tokens)
        elif run.cached_tokens == 0:
            assert self._new is not None, "append goes before read"
            return new_keys_values(self._new, run)
        else:
            part = self._gather(layer, run, step)
        keys, values = part.unbind(0)
        return keys, values

    def _gather(self, layer: int, run: SequenceRun, step: StepBatch) -> torch.Tensor:
        """[2, sequences, kv_heads, attended_tokens, head_dim], copied block by block."""
        blocks = self._rows_of(run, step)
        heads, head_dim = self._store.shape[3], self._store.shape[5]
        numbers = self._layers[layer].view(-1, self.block_tokens, head_dim)
        if self._store.dtype is torch.float8_e4m3fn:
            numbers = numbers.view(torch.uint8)
        # of one block no more than is needed, of several each whole
        copied = min(self.block_tokens, run.attended_tokens)
        shape = (_K_AND_V, run.num_sequences, heads, -1)
        part = numbers.narrow(1, 0, copied).index_select(0, blocks)
        part = part.view(self._store.dtype).view(*shape, head_dim)
        if not self.keeps_dtype:
            part = part.to(self._dtype)
        if self._scale_layers:
            scales = self._scale_layers[layer].view(-1, self.block_tokens).narrow(1, 0, copied)
            part = part.mul_(scales.index_select(0, blocks).view(*shape, 1))
        return part.narrow(3, 0, run.attended_tokens)

    def _rows_of(self, run: SequenceRun, step: StepBatch) -> torch.Tensor:
        """Blocks of one head to copy, counted in such blocks: [2 * sequences * kv_heads * width]."""
        if torch.compiler.is_compiling():  # which sees that all layers compute the same
            return self._make_rows(run, step)
        if run not in self._gathered_rows:
            self._gathered_rows[run] = self._make_rows(run, step)
        return self._gathered_rows[run]

    def _make_rows(self, run: SequenceRun, step: StepBatch) -> torch.Tensor:
        width = -(-run.attended_tokens // self.block_tokens)
        tables = step.block_tables.narrow(0, run.first_sequence, run.num_sequences)
        tables = tables[:, :width].long()
        rows = self._vector(tables.flatten()) // self.block_tokens
        rows = rows.view(run.num_sequences, width, _K_AND_V, -1).permute(2, 0, 3, 1)
        return rows.flatten()

    @torch.inference_mode()
    def fill_random(self, seed: int) -> None:
        """Hold normal noise in every block, as if prompts had been prefilled."""
        generator = torch.Generator(self._store.device).manual_seed(seed)
        for layer, numbers in enumerate(self._layers):
            if self.keeps_dtype:
                numbers.normal_(generator=generator)
                continue
            noise = torch.empty(numbers.shape, device=numbers.device).normal_(generator=generator)
            if self._scale_layers:
                quantized, scales = quantize_int8(noise)
                self._scale_layers[layer].copy_(scales)
                numbers.copy_(quantized)
            else:
                numbers.copy_(to_fp8(noise))


def _find_append_kernel(device: str) -> AppendKernel | None:
    """For `cpu` or `cuda:N`; None where torch's indexing is used."""
    if runs_native(device):
        return kv_append_
    kernels = gpu_kernels(device)
    return None if kernels is None else kernels.kv_append_


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    if torch.device(device).type == "cpu":
        return huge_zeros(shape, dtype)
    return torch.zeros(shape, dtype=dtype, device=device)
