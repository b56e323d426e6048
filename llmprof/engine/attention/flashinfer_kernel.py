"""Attention by FlashInfer (Ye et al. 2025), which plans on the host how a step's work is cut up."""

from typing import Any, Final

import torch

from llmprof.costs.options import FLASHINFER_WORKSPACE_BYTES
from llmprof.engine.attention.flashinfer_pages import StepPages, step_pages
from llmprof.engine.attention.needs import AttentionNeeds
from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.kernels.flashinfer_attention import (
    PagedWrapper,
    flashinfer_attention,
    handle_of,
)
from llmprof.engine.step_batch import StepBatch
from llmprof.errors import MeasurementFailedError

_LAYOUT: Final = "HND"
"""Of a page: [kv_heads, tokens, head_dim], as our blocks are."""
_HEAD_DIMS: Final = (64, 128, 256)
"""That its decode and prefill kernels are made for."""
_TENSOR_CORES_FROM: Final = 4
"""Query heads per KV head from which FlashInfer's tensor cores decode faster than its CUDA cores."""


def flashinfer_trouble(needs: AttentionNeeds) -> str | None:
    """Why it cannot do it, as the end of a sentence; None where it can."""
    if needs.dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in 16 bits, and this run in {_name(needs.dtype)}"
    if needs.stored not in (needs.dtype, torch.float8_e4m3fn):
        return f"it has no kernel for keys and values in {_name(needs.stored)}"
    if needs.head_dim not in _HEAD_DIMS:
        return f"it has no kernel for heads of {needs.head_dim} numbers"
    return None


class FlashInferKernel:
    """One plan per step and rule, one call per layer. See `step_kernels.StepKernel`.

    A captured step keeps its wrapper and the buffers behind it; before each replay the wrapper plans
    again, which rewrites them.
    """

    def __init__(self, module: Any, version: str, needs: AttentionNeeds) -> None:
        """`module`: the package flashinfer."""
        self.version = version
        self.name = f"flashinfer {version}: BatchDecode/BatchPrefillWithPagedKVCacheWrapper"
        self._module = module
        self._needs = needs
        self._workspace = torch.zeros(
            FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=needs.device
        )
        self._eager: dict[tuple[bool, ScoreRule], PagedWrapper] = {}
        self._captured: dict[tuple[int, int, ScoreRule], PagedWrapper] = {}
        self._planned: dict[ScoreRule, PagedWrapper] = {}
        self._pages: StepPages | None = None
        self._replayed: torch.Tensor | None = None
        """Block tables of the captured step that is planned now."""

    def begin_step(self, step: StepBatch) -> None:
        if step.block_tables is not self._replayed:
            self._planned, self._pages, self._replayed = {}, None, None

    def before_replay(self, step: StepBatch, block_tokens: int) -> None:
        self._planned, self._replayed = {}, step.block_tables
        self._pages = step_pages(step, block_tokens)
        for rule in self._needs.rules:
            self._planned[rule] = self._plan(self._for_graphs(step, rule), step, rule)

    def __call__(
        self, query: torch.Tensor, store: torch.Tensor, step: StepBatch, rule: ScoreRule = PLAIN
    ) -> torch.Tensor:
        if self._pages is None:
            self._pages = step_pages(step, store.shape[3])
        if rule not in self._planned:
            self._planned[rule] = self._plan(self._op_by_op(step, rule), step, rule)
        wrapper = handle_of(self._planned[rule])
        return flashinfer_attention(query, store, self._pages.bounds, step.context_lens, wrapper)

    def _plan(self, wrapper: PagedWrapper, step: StepBatch, rule: ScoreRule) -> PagedWrapper:
        """Tell a wrapper about the step.

        Raises:
            MeasurementFailedError: it does not like it.
        """
        pages, needs = self._pages, self._needs
        assert pages is not None
        decodes = _decodes(step)
        of_pages = (pages.indptr, pages.indices, pages.last_page_len)
        of_rows = () if decodes else (pages.bounds,)
        try:
            wrapper.plan(
                *of_rows,
                *of_pages,
                needs.num_heads,
                needs.num_kv_heads,
                needs.head_dim,
                pages.page_tokens,
                **({} if decodes else {"causal": True}),
                pos_encoding_mode="NONE",
                # a window counts the tokens before a query, ours the query's own too
                window_left=-1 if rule.window is None else rule.window - 1,
                logits_soft_cap=rule.cap,
                sm_scale=rule.scale_for(needs.head_dim),
                q_data_type=needs.dtype,
                kv_data_type=needs.stored,
            )
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise MeasurementFailedError(
                f"FlashInfer could not plan a step of {step.num_sequences} sequences ({reason})",
                remedy="Set attention.backend=native",
            ) from error
        return wrapper

    def _op_by_op(self, step: StepBatch, rule: ScoreRule) -> PagedWrapper:
        decodes = _decodes(step)
        if (decodes, rule) not in self._eager:
            made = self._decoder() if decodes else self._prefiller()
            self._eager[decodes, rule] = made
        return self._eager[decodes, rule]

    def _for_graphs(self, step: StepBatch, rule: ScoreRule) -> PagedWrapper:
        """With buffers for the longest tables of the captured step."""
        rows, width = step.block_tables.shape
        if (rows, width, rule) not in self._captured:
            room = torch.zeros(
                (rows + 1) + rows * width + rows, dtype=torch.int32, device=self._needs.device
            )
            indptr, indices, last_page_len = torch.split(room, [rows + 1, rows * width, rows])
            self._captured[rows, width, rule] = self._decoder(
                use_cuda_graph=True,
                paged_kv_indptr_buffer=indptr,
                paged_kv_indices_buffer=indices,
                paged_kv_last_page_len_buffer=last_page_len,
            )
        return self._captured[rows, width, rule]

    def _decoder(self, **for_graphs: Any) -> PagedWrapper:
        group = self._needs.num_heads // self._needs.num_kv_heads
        converts = self._needs.stored is not self._needs.dtype
        wrapper: PagedWrapper = self._module.BatchDecodeWithPagedKVCacheWrapper(
            self._workspace,
            _LAYOUT,
            use_tensor_cores=converts or group >= _TENSOR_CORES_FROM,
            **for_graphs,
        )
        return wrapper

    def _prefiller(self) -> PagedWrapper:
        wrapper: PagedWrapper = self._module.BatchPrefillWithPagedKVCacheWrapper(
            self._workspace, _LAYOUT
        )
        return wrapper


def _decodes(step: StepBatch) -> bool:
    return all(run.new_tokens == 1 for run in step.runs)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
