"""What is captured in a CUDA graph, without a GPU: a recording takes the graph's place."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from llmprof.costs.row_buckets import row_buckets
from llmprof.engine.attention import FlashAttention, StandardAttention, standard
from llmprof.engine.attention.standard import ScoreBuffers
from llmprof.engine.engine import Engine
from llmprof.engine.execution.graph_step import GraphRecorder, GraphStep, context_bucket
from llmprof.engine.execution.replay_runner import ReplayRunner
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.serving_workload import ServingWorkload
from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpGroup, StepShape
from llmprof.schema.settings import RunConfig
from tests.stand_in_graphs import StandInGraph, use_stand_in_graphs
from tests.tiny_decoders import LLAMA, PROMPT, load_engine, settings, write_decoder


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_in_graphs(monkeypatch)


def as_on_a_gpu(engine: Engine, attention: FlashAttention | StandardAttention) -> Engine:
    """No kernels that follow block tables."""
    decoder = dataclasses.replace(engine.decoder, attention=attention)
    return dataclasses.replace(
        engine, decoder=decoder, runner=ReplayRunner("graphs", GraphRecorder(), context_bucket)
    )


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("attention", [FlashAttention, StandardAttention])
def test_the_same_tokens_through_all_buckets(
    attention: type[FlashAttention | StandardAttention],
    layout: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write_decoder(tmp_path, LLAMA)
    engine = load_engine(settings(path, kv_cache={"layout": layout, "block_tokens": 8}))
    expected = engine.generate(PROMPT, GreedySampler(), max_tokens=14).ids
    graphed = as_on_a_gpu(engine, attention())
    monkeypatch.setattr("llmprof.engine.kv_cache.pool.runs_native", lambda device: False)
    assert graphed.generate(PROMPT, GreedySampler(), max_tokens=14).ids == expected
    assert isinstance(graphed.runner, ReplayRunner)
    first, last = len(PROMPT) + 1, len(PROMPT) + 13
    assert len(graphed.runner._recorded) >= (last - 1) // 4 - (first - 1) // 4 + 1


def serving_settings(path: Path, layout: str) -> RunConfig:
    return settings(
        path,
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


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_batches_that_grow_and_shrink_give_the_tokens_of_eager_steps(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmprof.engine.kv_cache.pool.runs_native", lambda device: False)
    config = serving_settings(write_decoder(tmp_path, LLAMA), layout)
    eager = ServingWorkload(load_engine(config), config)
    expected = eager.run_round(NullProbe())
    graphed = as_on_a_gpu(load_engine(config), FlashAttention())
    runner = ReplayRunner("graphs", GraphRecorder(), context_bucket, row_buckets=row_buckets(5))
    workload = ServingWorkload(dataclasses.replace(graphed, runner=runner), config)
    seen = watch_padding(monkeypatch)
    assert [workload.run_round(NullProbe()) for _ in range(2)] == [expected, expected]
    assert {rows for rows, _ in seen} <= {1, 2, 4, 5}
    assert any(real < rows for rows, real in seen)
    assert workload.describe().row_buckets == (1, 2, 4, 5)


def watch_padding(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows of each replay, and those that are real: the others must not point to a live block."""
    seen = []
    replay = GraphStep.replay

    def watched(step: GraphStep, probe: NullProbe) -> torch.Tensor:
        inputs, cache = step.inputs, step.cache
        live = inputs.step.block_tables[:, 0] != cache.scratch_block  # type: ignore[attr-defined]
        real = int(live.sum())
        assert bool(live[:real].all())
        assert bool((inputs.step.slots[real:] == inputs.scratch_slot).all())
        assert bool((inputs.step.context_lens[real:] == 1).all())
        seen.append((len(live), real))
        return replay(step, probe)

    monkeypatch.setattr(GraphStep, "replay", watched)
    return seen


class Groups:
    def __init__(self) -> None:
        self.seen: set[OpGroup] = set()

    def step_begin(self, shape: StepShape) -> None: ...
    def step_end(self) -> None: ...
    def group_begin(self, group: OpGroup) -> None:
        self.seen.add(group)

    def group_end(self) -> None: ...


@pytest.mark.usefixtures("graphs")
def test_a_probe_of_groups_sees_the_kernels_of_the_graph_one_by_one(tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    graphed = as_on_a_gpu(engine, FlashAttention())
    batch = graphed.open_batch(torch.tensor([list(PROMPT)]), output_tokens=3)
    probe, sampler = Groups(), GreedySampler()
    graphed.step(batch, sampler, NullProbe())
    graphed.step(batch, sampler, probe)
    assert {OpGroup.QKV_PROJECTION, OpGroup.ATTENTION, OpGroup.LM_HEAD} <= probe.seen


@pytest.mark.usefixtures("graphs")
def test_a_step_that_cannot_be_captured_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def fails(graph: StandInGraph, *, pool: object) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(torch.cuda, "graph", fails)
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    graphed = as_on_a_gpu(engine, FlashAttention())
    with pytest.raises(CapabilityError, match=r"cannot be captured \(operation not permitted"):
        graphed.generate(PROMPT, GreedySampler(), max_tokens=3)


def test_memory_that_a_graph_writes_to_outlives_larger_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffers, like = ScoreBuffers(), torch.zeros(1)
    monkeypatch.setattr(standard, "_is_captured", lambda tensor: True)
    (small, _) = buffers.views((4,), like)
    monkeypatch.setattr(standard, "_is_captured", lambda tensor: False)
    kept = small.untyped_storage().data_ptr()
    buffers.views((1 << 19,), like)
    assert buffers._outgrown[0][0].untyped_storage().data_ptr() == kept
