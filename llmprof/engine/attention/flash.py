"""Fused attention (Dao et al. 2022): scores stay on chip."""

from typing import Any

import torch
from torch.nn import functional

from llmprof.engine.attention import capped
from llmprof.engine.attention.base import DecodeKernel
from llmprof.engine.attention.chunk_kernels import ChunkKernel
from llmprof.engine.attention.folding import by_kv_head, by_token
from llmprof.engine.attention.masks import StepMasks
from llmprof.engine.attention.prefill_kernels import PrefillKernel
from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.attention.step_kernels import StepKernel
from llmprof.engine.kv_cache import KvCache, KvPool
from llmprof.engine.step_batch import SequenceRun, StepBatch


class FlashAttention:
    """One fused kernel per run; one of our own where a device has it.

    For decoding tokens, for prompts, and for new tokens that follow cached ones. A library's kernel
    takes steps with cached tokens whole.
    """

    def __init__(
        self,
        decode_kernel: DecodeKernel | None = None,
        prefill_kernel: PrefillKernel | None = None,
        rules: tuple[ScoreRule, ...] = (),
        chunk_kernel: ChunkKernel | None = None,
        step_kernel: StepKernel | None = None,
    ) -> None:
        """`rules`: one for each layer; none where all are plain."""
        self.decode_kernel = decode_kernel
        self.prefill_kernel = prefill_kernel
        self.chunk_kernel = chunk_kernel
        self.step_kernel = step_kernel
        self.kernel = "torch.nn.functional.scaled_dot_product_attention"
        if any(rule.cap for rule in rules):
            self.kernel = capped.KERNEL
        self._rules = rules
        self._masks = StepMasks()

    def begin_step(self, step: StepBatch) -> None:
        self._masks.begin_step()
        if self.step_kernel is not None:
            self.step_kernel.begin_step(step)

    def before_replay(self, step: StepBatch, block_tokens: int) -> None:
        if self.step_kernel is not None:
            self.step_kernel.before_replay(step, block_tokens)

    def __call__(
        self, query: torch.Tensor, cache: KvCache, layer: int, step: StepBatch
    ) -> torch.Tensor:
        rule = self._rules[layer] if self._rules else PLAIN
        whole = self.step_kernel
        if whole is not None and isinstance(cache, KvPool) and _needs_cache(step, rule, cache):
            return whole(query, cache.stored(layer), step, rule)
        outputs = [self._attend(query, cache, layer, run, step) for run in step.runs]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _attend(
        self,
        query: torch.Tensor,
        cache: KvCache,
        layer: int,
        run: SequenceRun,
        step: StepBatch,
    ) -> torch.Tensor:
        rule = self._rules[layer] if self._rules else PLAIN
        if self.decode_kernel is not None and run.decodes and isinstance(cache, KvPool):
            return self.decode_kernel(
                query.narrow(0, run.first_row, run.num_sequences),
                cache.stored(layer),
                cache.scales(layer),
                step.block_tables.narrow(0, run.first_sequence, run.num_sequences),
                step.context_lens.narrow(0, run.first_sequence, run.num_sequences),
                run.attended_tokens,
                rule,
            )
        window = rule.hides(run.attended_tokens)
        if self.chunk_kernel is not None and isinstance(cache, KvPool):
            needs_mask = window is not None or rule.cap is not None
            if run.cached_tokens or (needs_mask and cache.keeps_dtype):
                return self.chunk_kernel(
                    query.narrow(0, run.first_row, run.num_rows),
                    cache.stored(layer),
                    cache.scales(layer),
                    step.block_tables.narrow(0, run.first_sequence, run.num_sequences),
                    step.context_lens.narrow(0, run.first_sequence, run.num_sequences),
                    rule,
                )
        keys, values = cache.read(layer, run, step)
        plain = window is None and rule.cap is None and rule.scale is None
        if plain and self._fits_prefill_kernel(query, keys, run):
            assert self.prefill_kernel is not None
            rows = query.narrow(0, run.first_row, run.num_rows)
            return self.prefill_kernel(rows, keys, values)
        queries = by_kv_head(query, run, keys.shape[1])
        if rule.cap is not None:
            hidden, scale = self._masks.hidden(run, step, window), rule.scale_for(query.shape[-1])
            return by_token(capped.capped_attention(queries, keys, values, hidden, scale, rule.cap))
        if run.new_tokens == 1:
            visible = self._masks.visible(run, step, window)
            return one_token(queries, keys, values, visible, rule.scale)
        causal: dict[str, Any] = {"scale": rule.scale}
        if run.cached_tokens == 0 and window is None:
            causal["is_causal"] = True
        else:
            causal["attn_mask"] = self._masks.visible(run, step, window)
        if query.is_cuda and query.dtype is not torch.float32:
            return many_tokens_native(queries, keys, values, causal)
        return many_tokens_folded(queries, keys, values, causal)

    def _fits_prefill_kernel(
        self, query: torch.Tensor, keys: torch.Tensor, run: SequenceRun
    ) -> bool:
        return self.prefill_kernel is not None and self.prefill_kernel.fits(
            dtype=query.dtype,
            group=query.shape[1] // keys.shape[1],
            head_dim=query.shape[2],
            new_tokens=run.new_tokens,
        )


def _needs_cache(step: StepBatch, rule: ScoreRule, cache: KvPool) -> bool:
    """Whether a step needs more than its own keys and values, or a mask that torch would write.

    New ones alone are attended to before they are rounded to what the cache keeps.
    """
    if any(run.cached_tokens for run in step.runs):
        return True
    longest = max(run.attended_tokens for run in step.runs)
    return cache.keeps_dtype and (rule.cap is not None or rule.hides(longest) is not None)


def one_token(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
    scale: float | None = None,
) -> torch.Tensor:
    """The group becomes the rows of one head: a KV head is read once."""
    out = functional.scaled_dot_product_attention(
        queries.squeeze(3), keys, values, attn_mask=visible, scale=scale
    )
    return out.flatten(1)


def many_tokens_folded(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: dict[str, Any]
) -> torch.Tensor:
    """The group becomes the heads of one sequence, its keys and values repeated with stride zero.

    Without native support for groups torch would copy keys and values (CPU), or fall back to
    kernels that write the scores (fp32 on CUDA).
    """
    group = queries.shape[2]
    out = functional.scaled_dot_product_attention(
        queries.flatten(0, 1),
        keys.flatten(0, 1).unsqueeze(1).expand(-1, group, -1, -1),
        values.flatten(0, 1).unsqueeze(1).expand(-1, group, -1, -1),
        **causal,
    )
    return by_token(out.view(queries.shape))


def many_tokens_native(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: dict[str, Any]
) -> torch.Tensor:
    """For CUDA in 16 bits, where the fused kernels know about groups themselves."""
    out = functional.scaled_dot_product_attention(
        queries.flatten(1, 2), keys, values, enable_gqa=True, **causal
    )
    return out.transpose(1, 2).flatten(0, 1).flatten(1)
