"""Attention as it was before it was fused: scores go to memory and come back."""

import math

import torch

from llmprof.engine.attention.base import DecodeKernel
from llmprof.engine.attention.folding import by_kv_head, by_token
from llmprof.engine.attention.masks import StepMasks
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.step_batch import SequenceRun, StepBatch


class StandardAttention:
    """Three kernels with the score matrix written to memory between them, and a mask if needed."""

    kernel = "torch.baddbmm, torch.softmax, torch.bmm"
    decode_kernel: DecodeKernel | None = None

    def __init__(self) -> None:
        self._masks = StepMasks()

    def begin_step(self, step: StepBatch) -> None:
        self._masks.begin_step()

    def __call__(
        self, query: torch.Tensor, cache: KvCache, layer: int, step: StepBatch
    ) -> torch.Tensor:
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
        keys, values = cache.read(layer, run, step)
        queries = by_kv_head(query, run, keys.shape[1])
        folded = queries.flatten(0, 1).flatten(1, 2)
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        unused = folded.new_empty(1, 1, 1)
        scores = torch.baddbmm(
            unused, folded, keys.mT, beta=0, alpha=1 / math.sqrt(query.shape[-1])
        )  # [sequences * kv_heads, group * new_tokens, attended_tokens]
        visible = self._masks.visible(run, step)
        if visible is not None:
            by_head = scores.view(*queries.shape[:4], run.attended_tokens)
            hidden = ~visible if visible.dim() == 2 else ~visible.unsqueeze(1)
            by_head.masked_fill_(hidden, -math.inf)
        out = torch.bmm(torch.softmax(scores, dim=-1), values)
        return by_token(out.view(queries.shape))
