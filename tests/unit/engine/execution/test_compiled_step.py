"""Steps compiled by torch.compile, without a GPU: the torch path of the engine, and its operators.

`aot_eager` traces a step whole and makes it functional as for inductor, but calls torch's operators
instead of building kernels: what can go wrong before a compiler is asked goes wrong here.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmprof.costs.row_buckets import row_buckets
from llmprof.engine.attention import FlashAttention, StandardAttention
from llmprof.engine.execution import EagerRunner, make_runner, runner
from llmprof.engine.execution.compilations import Compilations
from llmprof.engine.execution.compiled_step import StepCompiler
from llmprof.engine.execution.replay_runner import ReplayRunner
from llmprof.engine.kernels import packed
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.serving_workload import ServingWorkload
from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpGroup, StepShape
from llmprof.schema.settings import AttentionKind, ExecutionMode, KvLayout
from llmprof.store.progress import NullProgress
from tests.compiled_engines import compiling, logits_of, recorded, running
from tests.tiny_decoders import DECODERS, LLAMA, PROMPT, load_engine, settings, write_decoder

pytestmark = pytest.mark.usefixtures("fresh_compiler")

FAMILIES = (
    "all_biases",
    "qwen3",
    "phi3_window",
    "phi3_partial",
    "gemma2",
    "gemma3",
    "glm4",
)
"""Every part that a step can have. How rotations are scaled changes the tables that it is given, and no step."""


@pytest.mark.usefixtures("torch_only")
@pytest.mark.parametrize(
    ("attention", "layout"), [(FlashAttention, "paged"), (StandardAttention, "contiguous")]
)
def test_torch_paths_give_the_logits_of_eager_steps(
    attention: type[FlashAttention | StandardAttention], layout: str, tmp_path: Path
) -> None:
    """Contexts of 10 to 14 tokens: two buckets of four, each compiled once and not again.

    `test_graph_step.py` has each attention with each layout, in the same steps.
    """
    path = write_decoder(tmp_path, LLAMA)
    engine = load_engine(settings(path, kv_cache={"layout": layout, "block_tokens": 8}))
    expected = logits_of(running(engine, EagerRunner(), attention()), tokens=6)
    replay = compiling(by_bucket=True)
    found = logits_of(running(engine, replay, attention()), tokens=6)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert replay.compilations is not None
    assert replay.compilations.count == len(recorded(replay)) == 2


CHANGES = [
    {},
    {"kv_cache": {"layout": "paged", "block_tokens": 8, "dtype": "int8"}},
    {"kv_cache": {"dtype": "fp8"}, "weights": {"quantization": "int8"}},
    {"weights": {"dtype": "bf16"}},
    {"weights": {"quantization": "int4"}},
    {"weights": {"quantization": "fp8"}},
]


@pytest.mark.parametrize("changes", CHANGES, ids=repr)
def test_our_kernels_are_opaque_and_serve_all_contexts(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """As on a GPU: products of packed weights, append and attention are operators of ours."""
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA), **changes))
    expected = logits_of(engine)
    replay = compiling()
    found = logits_of(running(engine, replay))
    error = 0.1 if changes.get("weights") == {"dtype": "bf16"} else 1e-4
    torch.testing.assert_close(found, expected, rtol=error, atol=error)
    assert replay.compilations is not None
    assert replay.compilations.count == len(recorded(replay)) == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_compiled_whole(name: str, tmp_path: Path) -> None:
    """Windows, capped scores, norms of heads and around blocks; experts are refused elsewhere."""
    decoder = next(one for one in DECODERS if one.name == name)
    engine = load_engine(settings(write_decoder(tmp_path, decoder)))
    expected = logits_of(engine)
    found = logits_of(running(engine, compiling()))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_another_cache_of_the_same_shape_runs_the_same_code(tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    replay = compiling()
    first, second = (
        running(engine, replay).generate(PROMPT, GreedySampler(), max_tokens=6).ids
        for _ in range(2)
    )
    assert first == second == LLAMA.greedy_ids
    assert replay.compilations is not None
    assert replay.compilations.count == 1
    assert replay.compilations.seconds > 0


class Notes(NullProgress):
    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def test_who_waits_is_told_what_for(tmp_path: Path) -> None:
    """Once for each shape, before it is compiled and after."""
    notes = Notes()
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    compiler = StepCompiler(Compilations(backend="eager"), notes)
    replay = ReplayRunner("compiled", compiler, lambda step: None, whole_tables=True)
    for _ in range(2):
        running(engine, replay).generate(PROMPT, GreedySampler(), max_tokens=6)
    before, after = notes.told
    assert before == "compiling the decode step for 1 sequence"
    assert after.startswith("compiled it in ")


def test_batches_that_grow_and_shrink(tmp_path: Path) -> None:
    config = settings(
        write_decoder(tmp_path, LLAMA),
        kv_cache={"layout": "paged", "block_tokens": 8},
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
    replay = compiling(buckets=row_buckets(5))
    workload = ServingWorkload(running(load_engine(config), replay), config)
    compiled_steps = []
    for _ in range(2):
        assert workload.run_round(NullProbe()) == expected
        compiled_steps.append(workload.round_details().compiled_steps)
    rows = {step.fixed.num_rows for step in recorded(replay)}
    assert rows <= {1, 2, 4, 5}
    assert compiled_steps == [len(rows), 0]
    described = workload.describe()
    assert described.compiled_steps == len(rows)
    assert described.compile_s > 0
    assert described.row_buckets == (1, 2, 4, 5)


class Groups:
    def __init__(self) -> None:
        self.seen: set[OpGroup] = set()

    def step_begin(self, shape: StepShape) -> None: ...
    def step_end(self) -> None: ...
    def group_begin(self, group: OpGroup) -> None:
        self.seen.add(group)

    def group_end(self) -> None: ...


def test_who_looks_between_groups_sees_the_kernels_of_the_engine(tmp_path: Path) -> None:
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    steps = running(engine, compiling())
    batch = steps.open_batch(torch.tensor([list(PROMPT)]), output_tokens=4)
    probe, sampler = Groups(), GreedySampler()
    for one in (NullProbe(), NullProbe(), probe, NullProbe()):
        steps.step(batch, sampler, one)
    assert {OpGroup.QKV_PROJECTION, OpGroup.ROPE, OpGroup.NORM, OpGroup.LM_HEAD} <= probe.seen
    start = len(PROMPT)
    assert tuple(batch.tokens[0, start : start + 4].tolist()) == LLAMA.greedy_ids[:4]


@pytest.mark.parametrize(
    "backend", [lambda *_: 1 / 0, lambda *_: (_ for _ in ()).throw(OSError("no compiler\nmore"))]
)
def test_what_cannot_be_compiled_is_refused(
    backend: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: backend)
    engine = running(load_engine(settings(write_decoder(tmp_path, LLAMA))), compiling())
    with pytest.raises(
        CapabilityError, match=r"torch\.compile cannot compile the decode step"
    ) as e:
        engine.generate(PROMPT, GreedySampler(), max_tokens=3)
    assert "\n" not in e.value.message
    assert e.value.remedy is not None


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, trouble: str | None, **given: Any) -> Any:
    monkeypatch.setattr(runner, "triton_trouble", lambda device: trouble)
    return make_runner(ExecutionMode.COMPILED, device="cuda:0", layout=KvLayout.PAGED, **given)


def test_a_gpu_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CapabilityError, match="not available on cuda:0: no cc, and") as caught:
        on_a_gpu(monkeypatch, "no cc")
    assert "gcc" in (caught.value.remedy or "")


def test_a_gpu_compiles_contexts_apart_only_where_kernels_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flash = on_a_gpu(monkeypatch, None, row_buckets=(1, 2))
    standard = on_a_gpu(monkeypatch, None, attention=AttentionKind.STANDARD)
    assert "torch.compile (inductor)" in flash.name
    assert "rows to a power of two" in flash.name
    assert "multiple of 256" in standard.name
    assert flash.row_buckets == (1, 2)


@pytest.mark.parametrize("tile_bytes", [1 << 20, 2000])
def test_many_rows_of_packed_weights_are_one_operator(
    tile_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = dataclasses.replace(packed.packed_kernels("cpu"), tile_bytes=tile_bytes)
    monkeypatch.setitem(packed._found, "cpu", kernels)
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA), weights={"quantization": "int8"}))
    rows = engine.decoder.head.few_rows + 1
    expected = logits_of(engine, rows)
    found = logits_of(running(engine, compiling()), rows)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_compiler_that_leaves_a_step_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with TORCH_COMPILE_DISABLE=1: what ran would be eager steps under another name."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    engine = running(load_engine(settings(write_decoder(tmp_path, LLAMA))), compiling())
    with pytest.raises(CapabilityError, match="left the decode step as it is") as caught:
        engine.generate(PROMPT, GreedySampler(), max_tokens=3)
    assert "TORCH_COMPILE_DISABLE" in (caught.value.remedy or "")
