"""Whole models on libraries of attention: step by step, in graphs and in growing batches, right tokens."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from llmprof.costs.row_buckets import row_buckets
from llmprof.engine.attention import AttentionNeeds, FlashAttention, flashinfer_kernel
from llmprof.engine.attention.decode_kernels import find_decode_kernel
from llmprof.engine.attention.flashinfer_kernel import FlashInferKernel
from llmprof.engine.attention.masks import StepMasks
from llmprof.engine.attention.step_kernels import StepKernel
from llmprof.engine.attention.varlen_api import VarlenApi
from llmprof.engine.attention.varlen_kernel import VarlenKernel
from llmprof.engine.engine import Engine
from llmprof.engine.execution import EagerRunner
from llmprof.engine.execution.graph_step import GraphRecorder, context_bucket
from llmprof.engine.execution.replay_runner import ReplayRunner
from llmprof.engine.kernels.flashinfer_attention import flashinfer_attention
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.serving_workload import ServingWorkload
from llmprof.schema.settings import RunConfig
from tests import attention_libraries
from tests.attention_libraries import FakeVarlen
from tests.stand_in_graphs import use_stand_in_graphs
from tests.tiny_decoders import LLAMA, PROMPT, load_engine, settings, write_decoder

LAYOUTS = pytest.mark.parametrize("layout", ["contiguous", "paged"])
LIBRARIES = pytest.mark.parametrize("library", ["varlen", "flashinfer"])


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph holds what FlashInfer launches, so its operator is looked into."""
    use_stand_in_graphs(monkeypatch)
    inside = flashinfer_attention.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(flashinfer_kernel, "flashinfer_attention", inside)
    monkeypatch.setattr("llmprof.engine.kv_cache.pool.runs_native", lambda device: False)


class Unchecked(FakeVarlen):
    """Computes, and asks nothing of the host: so it can be recorded."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seq_q: torch.Tensor,
        *args: object,
        **given: object,
    ) -> torch.Tensor:
        if torch._C._len_torch_dispatch_stack() == 0:
            return super().__call__(query, key, value, cu_seq_q, *args, **given)  # type: ignore[arg-type]
        lens, tables = given["seqused_k"], given["block_table"]
        assert isinstance(lens, torch.Tensor)
        assert isinstance(tables, torch.Tensor)
        return attention_libraries.paged(query, (key, value), cu_seq_q, lens, tables, -1, None)


def kernel_of(engine: Engine, config: RunConfig, library: str) -> StepKernel:
    if library == "varlen":
        parameters = frozenset(inspect.signature(FakeVarlen.__call__).parameters)
        return VarlenKernel(VarlenApi(Unchecked(), parameters), flash_attention_3=False)
    model = engine.model
    asked = AttentionNeeds(
        "cpu",
        torch.float32,
        torch.float32,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
        config.kv_cache.block_tokens,
    )
    return FlashInferKernel(attention_libraries, "0.0", asked)


def on_library(config: RunConfig, library: str, *, buckets: tuple[int, ...] | None) -> Engine:
    """`buckets`: rows of graphs; None: step by step."""
    engine = load_engine(config)
    attention = FlashAttention(step_kernel=kernel_of(engine, config, library))
    runner = (
        EagerRunner()
        if buckets is None
        else ReplayRunner("graphs", GraphRecorder(), context_bucket, row_buckets=buckets)
    )
    decoder = dataclasses.replace(engine.decoder, attention=attention)
    return dataclasses.replace(engine, decoder=decoder, runner=runner)


@LAYOUTS
@LIBRARIES
@pytest.mark.parametrize("graphed", [False, True], ids=["eager", "graphs"])
def test_the_tokens_of_another_implementation(
    library: str, layout: str, graphed: bool, tmp_path: Path
) -> None:
    """Blocks of 8 tokens and buckets of 4: several of each on the way."""
    config = settings(
        write_decoder(tmp_path, LLAMA), kv_cache={"layout": layout, "block_tokens": 8}
    )
    engine = on_library(config, library, buckets=() if graphed else None)
    found = engine.generate(PROMPT, GreedySampler(), max_tokens=len(LLAMA.greedy_ids)).ids
    assert found == LLAMA.greedy_ids
    if graphed:
        assert isinstance(engine.runner, ReplayRunner)
        assert len(engine.runner._recorded) >= 2


@LAYOUTS
@LIBRARIES
@pytest.mark.parametrize("graphed", [False, True], ids=["eager", "graphs"])
def test_batches_that_grow_and_shrink(
    library: str, layout: str, graphed: bool, tmp_path: Path
) -> None:
    config = settings(
        write_decoder(tmp_path, LLAMA),
        kv_cache={"layout": layout},
        batching={"policy": "continuous", "max_sequences": 5, "max_step_tokens": 16},
        workload={
            "kind": "trace",
            "requests": 9,
            "lengths": {
                "prompt": {"kind": "uniform", "mean": 6, "low": 2, "high": 12},
                "output": {"kind": "uniform", "mean": 6, "low": 2, "high": 12},
            },
        },
    )
    expected = ServingWorkload(load_engine(config), config).run_round(NullProbe())
    engine = on_library(config, library, buckets=row_buckets(5) if graphed else None)
    workload = ServingWorkload(engine, config)
    assert [workload.run_round(NullProbe()) for _ in range(2)] == [expected, expected]


@LAYOUTS
def test_a_captured_decode_step_never_masks(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that are given lengths read them in every replay; torch's would get a mask of the bucket.

    The decode kernel of the CPU takes the place of the one in Triton: it has the same arguments.
    """
    config = settings(write_decoder(tmp_path, LLAMA), kv_cache={"layout": layout})
    engine = load_engine(config)
    attention = FlashAttention(find_decode_kernel("cpu"))
    decoder = dataclasses.replace(engine.decoder, attention=attention)
    runner = ReplayRunner("graphs", GraphRecorder(), context_bucket)
    engine = dataclasses.replace(engine, decoder=decoder, runner=runner)
    made: list[object] = []
    masks = StepMasks.visible

    def watched(*args: Any) -> torch.Tensor | None:
        made.append(args)
        return masks(*args)

    monkeypatch.setattr(StepMasks, "visible", watched)
    found = engine.generate(PROMPT, GreedySampler(), max_tokens=len(LLAMA.greedy_ids)).ids
    assert found == LLAMA.greedy_ids
    assert len(runner._recorded) >= 2
    assert not made
