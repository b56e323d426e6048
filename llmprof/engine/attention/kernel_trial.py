"""A library's kernel is tried before a run relies on it: on a small cache, against plain arithmetic.

Its wheels may be built for another GPU, its compiler may be missing, its limits may be others than
its documentation says: what it does here is known only here.
"""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import torch

from llmprof.engine.attention.needs import AttentionNeeds
from llmprof.engine.attention.score_rule import ScoreRule
from llmprof.engine.attention.step_kernels import StepKernel
from llmprof.engine.kv_cache.formats import to_fp8
from llmprof.engine.step_batch import SequenceRun, StepBatch
from llmprof.errors import LlmprofError

_LONG_BLOCK: Final = 272
"""Tokens of a block of a contiguous cache in the trial: no power of two, as there."""
_TABLE_WIDTH: Final = 3
_WINDOW: Final = 7
"""Short enough to hide something."""
_TOLERANCE: Final = 3e-2
"""Of mixed values of about 1: some roundings of bf16 (2**-8), and far below what a token too many or
too few changes."""
_FAILURES: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    AssertionError,
    ImportError,
    OSError,
    subprocess.SubprocessError,
    LlmprofError,
)
"""Anything but an interrupt: kernels that are compiled on first use fail in many ways."""


@torch.inference_mode()
def trial_trouble(kernel: StepKernel, needs: AttentionNeeds) -> str | None:
    """What went wrong, as the end of a sentence; None where every result was right."""
    try:
        for rule in needs.rules:
            error = _largest_error(kernel, needs, rule)
            if not error <= _TOLERANCE:  # no number is no right result either
                return f"it gives wrong results here (off by {error:.2g} in a trial)"
    except _FAILURES as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"it fails in a trial ({lines[0][:200]})"
    return None


def _largest_error(kernel: StepKernel, needs: AttentionNeeds, rule: ScoreRule) -> float:
    if rule.window is not None:
        rule = replace(rule, window=_WINDOW)
    generator = torch.Generator(needs.device).manual_seed(0)
    store = _filled_store(needs, generator)
    block = store.shape[3]
    tables = torch.randperm(store.shape[1], generator=generator, device=needs.device)
    tables = tables.to(torch.int32).view(-1, _TABLE_WIDTH)
    errors = []
    for new_tokens in ((1, 1), (3, 2)):
        step = _step(tables, (2 * block + 5, 3), new_tokens)
        # rows as views into a wider projection, as in the model
        wide = (step.num_rows, needs.num_heads + 2 * needs.num_kv_heads, needs.head_dim)
        drawn = torch.randn(wide, generator=generator, device=needs.device).to(needs.dtype)
        query = drawn.narrow(1, 0, needs.num_heads)
        kernel.begin_step(step)
        found = kernel(query, store, step, rule)
        expected = torch.cat(list(_expected(query, store, step, rule)))
        errors.append((found.float() - expected).abs().max())
    return float(torch.stack(errors).max())  # of which one that is no number is the largest


def _filled_store(needs: AttentionNeeds, generator: torch.Generator) -> torch.Tensor:
    block_tokens = needs.block_tokens or _LONG_BLOCK
    shape = (2, 2 * _TABLE_WIDTH, needs.num_kv_heads, block_tokens, needs.head_dim)
    noise = torch.randn(shape, generator=generator, device=needs.device)
    return to_fp8(noise) if needs.stored is torch.float8_e4m3fn else noise.to(needs.stored)


def _step(tables: torch.Tensor, contexts: Sequence[int], new_tokens: Sequence[int]) -> StepBatch:
    rows, device = sum(new_tokens), tables.device
    unused = torch.zeros(rows, dtype=torch.int32, device=device)
    runs: tuple[SequenceRun, ...]
    if set(new_tokens) == {1}:
        runs = (SequenceRun(0, 0, len(contexts), 1, max(contexts) - 1, same_context=False),)
    else:
        starts = [0, *accumulate(new_tokens)]
        runs = tuple(
            SequenceRun(start, index, 1, new, context - new, same_context=True)
            for index, (start, new, context) in enumerate(
                zip(starts[:-1], new_tokens, contexts, strict=True)
            )
        )
    return StepBatch(
        ids=unused,
        positions=unused,
        slots=unused,
        block_tables=tables,
        context_lens=torch.tensor(contexts, dtype=torch.int32, device=device),
        runs=runs,
        host_context_lens=tuple(contexts),
    )


def _expected(
    query: torch.Tensor, store: torch.Tensor, step: StepBatch, rule: ScoreRule
) -> Iterator[torch.Tensor]:
    """Of each sequence [new, heads * head_dim] in fp32: every score written out."""
    lens = step.host_context_lens or ()
    counts = [run.new_tokens for run in step.runs for _ in range(run.num_sequences)]
    parts = zip(torch.split(query.float(), counts), lens, step.block_tables.long(), strict=True)
    for rows, context, table in parts:
        new, heads, head_dim = rows.shape
        cached = store[:, table].float().transpose(2, 3).flatten(1, 2)[:, :context]
        keys, values = cached.repeat_interleave(heads // store.shape[2], dim=2).unbind(0)
        scores = torch.einsum("qhd,khd->hqk", rows, keys) * rule.scale_for(head_dim)
        if rule.cap is not None:
            scores = rule.cap * torch.tanh(scores / rule.cap)
        seen = torch.ones(new, context, dtype=torch.bool, device=rows.device)
        seen = seen.tril(context - new)
        if rule.window is not None:
            seen = seen.triu(context - new - rule.window + 1)
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        yield torch.einsum("hqk,khd->qhd", weights, values).flatten(1)
