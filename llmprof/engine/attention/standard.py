"""Attention as it was before it was fused: scores go to memory and come back."""

import math

import torch

from llmprof.costs.attention_memory import score_buffer_numbers
from llmprof.engine.attention.base import DecodeKernel
from llmprof.engine.attention.chunk_kernels import ChunkKernel
from llmprof.engine.attention.folding import by_kv_head, by_token
from llmprof.engine.attention.masks import StepMasks
from llmprof.engine.attention.prefill_kernels import PrefillKernel
from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.attention.step_kernels import StepKernel
from llmprof.engine.kernels.memory import huge_empty
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.step_batch import SequenceRun, StepBatch


class StandardAttention:
    """Three kernels with the score matrix written to memory between them, and a mask if needed."""

    decode_kernel: DecodeKernel | None = None
    prefill_kernel: PrefillKernel | None = None
    chunk_kernel: ChunkKernel | None = None
    step_kernel: StepKernel | None = None

    def __init__(self, rules: tuple[ScoreRule, ...] = ()) -> None:
        """`rules`: one for each layer; none where all are plain."""
        capped = any(rule.cap for rule in rules)
        self.kernel = f"torch.baddbmm, {'torch.tanh, ' if capped else ''}torch.softmax, torch.bmm"
        self._rules = rules
        self._masks = StepMasks()
        self._buffers = ScoreBuffers()

    def begin_step(self, step: StepBatch) -> None:
        self._masks.begin_step()

    def before_replay(self, step: StepBatch, block_tokens: int) -> None:
        pass

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
        rule = self._rules[layer] if self._rules else PLAIN
        scale = rule.scale_for(query.shape[-1]) / (rule.cap or 1.0)
        scores, weights = self._scores(folded, keys, scale)
        if rule.cap is not None:
            scores.tanh_().mul_(rule.cap)
        hidden = self._masks.hidden(run, step, rule.hides(run.attended_tokens))
        if hidden is not None:
            by_head = scores.view(*queries.shape[:4], run.attended_tokens)
            by_head.masked_fill_(hidden if hidden.dim() == 2 else hidden.unsqueeze(1), -math.inf)
        if weights is None:
            weights = torch.softmax(scores, dim=-1)
        else:
            torch.softmax(scores, dim=-1, out=weights)
        return by_token(torch.bmm(weights, values).view(queries.shape))

    def _scores(
        self, queries: torch.Tensor, keys: torch.Tensor, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Products of queries [n, rows, head_dim] and keys [n, tokens, head_dim], and room for their softmax.

        torch.compile reserves its own memory, and would copy to ours.
        """
        if torch.compiler.is_compiling():  # which would fill what it has to broadcast
            unused = queries.new_empty(*queries.shape[:2], keys.shape[1])
            return torch.baddbmm(unused, queries, keys.mT, beta=0, alpha=scale), None
        unused = queries.new_empty(1, 1, 1)
        scores, weights = self._buffers.views((*queries.shape[:2], keys.shape[1]), queries)
        torch.baddbmm(unused, queries, keys.mT, beta=0, alpha=scale, out=scores)
        return scores, weights


class ScoreBuffers:
    """Memory for scores and for their softmax, kept from layer to layer and from step to step.

    Fresh memory of hundreds of MiB in every layer would cost more in page faults than the arithmetic
    on it: 2.8 times the prefill time at 8,128 tokens of the demo model on a CPU.
    """

    def __init__(self) -> None:
        self._flat: tuple[torch.Tensor, ...] = ()
        self._in_graphs = False
        self._outgrown: list[tuple[torch.Tensor, ...]] = []
        """Too small by now, but a graph that was captured with them writes there in every replay."""

    def views(self, shape: tuple[int, ...], like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Two uninitialised tensors of this shape, with the dtype and device of `like`."""
        numbers = math.prod(shape)
        if not self._flat or self._flat[0].numel() < numbers or self._flat[0].dtype != like.dtype:
            room = score_buffer_numbers(numbers)
            if self._in_graphs:
                self._outgrown.append(self._flat)
            self._in_graphs = False
            self._flat = ()  # the old memory goes first
            self._flat = tuple(_empty(room, like) for _ in range(2))
        self._in_graphs = self._in_graphs or _is_captured(like)
        return tuple(flat[:numbers].view(shape) for flat in self._flat)


def _empty(numbers: int, like: torch.Tensor) -> torch.Tensor:
    if like.is_cpu:
        return huge_empty((numbers,), like.dtype)
    return like.new_empty(numbers)


def _is_captured(tensor: torch.Tensor) -> bool:
    """Whether what is done to it now becomes part of a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
