"""Attention by `torch.nn.attention.varlen`, which reads a paged cache through block tables.

torch's kernels are those of FlashAttention (Dao 2023; Shah et al. 2024), which want a page as
[tokens, kv_heads, head_dim]; the store has the heads outside, and is passed with its strides.
"""

from itertools import accumulate
from typing import Final

import torch

from llmprof.engine.attention.needs import AttentionNeeds
from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.attention.varlen_api import VarlenApi
from llmprof.engine.step_batch import StepBatch

_LARGEST_HEAD_DIM: Final = 256
_HEAD_DIM_STEP: Final = 8
_FA2_PAGE_TOKENS: Final = 256
"""FlashAttention 2 takes pages of a multiple of so many tokens."""
_FA2_CAPABILITY: Final = (8, 0)


def varlen_trouble(needs: AttentionNeeds, *, flash_attention_3: bool) -> str | None:
    """Why FlashAttention of torch cannot do it, as the end of a sentence; None where it can."""
    if needs.dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in 16 bits, and this run in {_name(needs.dtype)}"
    if needs.stored is not needs.dtype:
        return f"it reads keys and values in the dtype of the query, and these are {_name(needs.stored)}"
    if needs.head_dim > _LARGEST_HEAD_DIM or needs.head_dim % _HEAD_DIM_STEP:
        return f"it takes heads of at most {_LARGEST_HEAD_DIM} numbers, not {needs.head_dim}"
    if any(rule.cap is not None for rule in needs.rules):
        return "it does not cap scores"
    if flash_attention_3:
        return None
    if torch.cuda.get_device_capability(needs.device) < _FA2_CAPABILITY:
        return "FlashAttention 2 needs compute capability 8.0"
    if needs.block_tokens is None:
        return "FlashAttention 2 takes pages of 256 tokens, and the cache is contiguous"
    if needs.block_tokens % _FA2_PAGE_TOKENS:
        return f"FlashAttention 2 takes pages of 256 tokens, and blocks have {needs.block_tokens}"
    return None


class VarlenKernel:
    """One call for all sequences of a step. See `step_kernels.StepKernel`."""

    def __init__(self, api: VarlenApi, *, flash_attention_3: bool) -> None:
        """`flash_attention_3`: what torch has been told to use."""
        self.implementation = f"FlashAttention {3 if flash_attention_3 else 2}"
        self.name = f"torch.nn.attention.varlen.varlen_attn ({self.implementation})"
        self._attend = api.attend
        self._given: dict[str, object] = {}
        if "enable_gqa" in api.parameters:
            self._given["enable_gqa"] = True
        if "num_splits" in api.parameters and not flash_attention_3:
            # With the tokens of a sequence split among programs, FlashAttention 2 leaves rows of
            # paged sequences unwritten (https://github.com/pytorch/pytorch/issues/194167), in some
            # builds by its own choice too. A single pass is right, and slow for few sequences.
            self._given["num_splits"] = 1
        self._wants_key_bounds = not flash_attention_3
        self._bounds: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def begin_step(self, step: StepBatch) -> None:
        self._bounds = None

    def before_replay(self, step: StepBatch, block_tokens: int) -> None:
        pass

    def __call__(
        self, query: torch.Tensor, store: torch.Tensor, step: StepBatch, rule: ScoreRule = PLAIN
    ) -> torch.Tensor:
        keys, values = store.transpose(2, 3).unbind(0)
        of_queries, of_keys = self._bounds = self._bounds or self._cumulate(step)
        # a window counts the tokens before a query, ours the query's own too
        window = (-1 if rule.window is None else rule.window - 1, 0)
        out: torch.Tensor = self._attend(
            query,
            keys,
            values,
            of_queries,
            of_keys,
            max(run.new_tokens for run in step.runs),
            max(run.attended_tokens for run in step.runs),
            scale=rule.scale,
            window_size=window,
            seqused_k=step.context_lens,
            block_table=step.block_tables,
            **self._given,
        )
        return out.flatten(1)

    def _cumulate(self, step: StepBatch) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Where each sequence's queries and keys start, [sequences + 1] int32.

        With pages the kernels find the keys through the block table; FlashAttention 2 wants their
        bounds all the same, and FlashAttention 3 refuses them.
        """
        of_queries = query_bounds(step)
        if not self._wants_key_bounds:
            return of_queries, None
        of_keys = of_queries.new_zeros(step.num_sequences + 1)
        torch.cumsum(step.context_lens, 0, dtype=torch.int32, out=of_keys[1:])
        return of_queries, of_keys


def query_bounds(step: StepBatch) -> torch.Tensor:
    """Where the rows of each sequence start, and where the last one ends: [sequences + 1] int32."""
    device, first = step.context_lens.device, step.runs[0]
    if all(run.new_tokens == first.new_tokens for run in step.runs):
        # made on the device: a captured decode step copies nothing from the host
        ends = step.num_rows + 1
        return torch.arange(0, ends, first.new_tokens, dtype=torch.int32, device=device)
    counts = [run.new_tokens for run in step.runs for _ in range(run.num_sequences)]
    return torch.tensor([0, *accumulate(counts)], dtype=torch.int32).to(device)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
