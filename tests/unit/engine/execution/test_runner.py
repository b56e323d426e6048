"""Recorded steps give what eager ones give, and are refused where they cannot be had."""

from pathlib import Path
from typing import Any

import pytest
import torch

from llmprof.engine.engine import Engine
from llmprof.engine.execution import make_runner
from llmprof.engine.execution.program_step import ProgramStep
from llmprof.engine.execution.replay_runner import ReplayRunner
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpGroup, StepShape
from llmprof.schema.settings import ExecutionMode, KvLayout
from tests.tiny_decoders import DECODERS, LLAMA, PROMPT, load_engine, settings, write_decoder

LAYERS = 2
NUM_TOKENS = 6
COMPILED = {"mode": "compiled"}
LLAMA_LIKE = [one for one in DECODERS if len(one.greedy_ids) == NUM_TOKENS]
SWITCHES = [(kind, layout) for kind in ("flash", "standard") for layout in ("contiguous", "paged")]


class Groups:
    """Remembers what a step announced."""

    def __init__(self) -> None:
        self.seen: list[OpGroup] = []

    def step_begin(self, shape: StepShape) -> None:
        pass

    def step_end(self) -> None:
        pass

    def group_begin(self, group: OpGroup) -> None:
        self.seen.append(group)

    def group_end(self) -> None:
        pass


def engines(tmp_path: Path, decoder: Any = LLAMA, **groups: Any) -> tuple[Engine, Engine]:
    """One that runs eagerly, and one that replays."""
    path = write_decoder(tmp_path, decoder)
    eager, compiled = settings(path, **groups), settings(path, execution=COMPILED, **groups)
    return load_engine(eager), load_engine(compiled)


def recorded(engine: Engine) -> list[ProgramStep]:
    assert isinstance(engine.runner, ReplayRunner)
    return [step for step in engine.runner._recorded.values() if isinstance(step, ProgramStep)]


@pytest.mark.parametrize(("kind", "layout"), SWITCHES)
@pytest.mark.parametrize("decoder", LLAMA_LIKE, ids=lambda decoder: decoder.name)
def test_known_tokens(decoder: Any, kind: str, layout: str, tmp_path: Path) -> None:
    """`tests/integration/test_engine_families.py` has the others."""
    groups = {"attention": {"kind": kind}, "kv_cache": {"layout": layout}}
    _, engine = engines(tmp_path, decoder, **groups)
    generated = engine.generate(PROMPT, GreedySampler(), max_tokens=NUM_TOKENS)
    assert generated.ids == decoder.greedy_ids
    (step,) = recorded(engine)
    python_calls = 0 if kind == "flash" else LAYERS
    assert step.program.num_python_calls == python_calls


@pytest.mark.parametrize(
    "changes", [{"kv_cache": {"dtype": "int8"}}, {"weights": {"dtype": "bf16"}}]
)
def test_the_same_logits_step_by_step(changes: dict[str, Any], tmp_path: Path) -> None:
    prompts = torch.randint(48, (3, 12), generator=torch.Generator().manual_seed(5))
    logits = []
    for engine in engines(tmp_path, **changes):
        batch = engine.open_batch(prompts, output_tokens=9)
        steps = []
        for _ in range(9):
            with torch.inference_mode():
                step = engine.forward(batch.next_step(), batch.cache, batch.rotary, NullProbe())
                steps.append(step.clone())
                GreedySampler()(step, batch.tokens.narrow(1, batch.num_tokens, 1))
            batch.advance()
        logits.append(torch.stack(steps))
    eager, replayed = logits
    assert torch.equal(eager, replayed)


def test_a_new_cache_is_recorded_anew(tmp_path: Path) -> None:
    _, engine = engines(tmp_path)
    for _ in range(2):
        generated = engine.generate(PROMPT, GreedySampler(), max_tokens=NUM_TOKENS)
        assert generated.ids == LLAMA.greedy_ids
    assert len(recorded(engine)) == 1


def test_groups_are_seen_by_who_looks(tmp_path: Path) -> None:
    eager, compiled = engines(tmp_path)
    seen = []
    for engine in (eager, compiled):
        probe = Groups()
        batch = engine.open_batch(torch.tensor([PROMPT]), output_tokens=3)
        engine.step(batch, GreedySampler(), NullProbe())
        engine.step(batch, GreedySampler(), NullProbe())
        engine.step(batch, GreedySampler(), probe)
        seen.append(probe.seen)
    assert seen[0] == seen[1]


def test_a_clean_replay_comes_back_to_python_once(tmp_path: Path) -> None:
    _, engine = engines(tmp_path)
    engine.generate(PROMPT, GreedySampler(), max_tokens=3)
    (step,) = recorded(engine)
    assert len(step.program._whole) == 1
    per_layer = 11  # 2 norms, 4 products, rotation, append, attention, activation, 2 additions: 12
    assert step.program.num_native_calls == LAYERS * (per_layer + 1) + 2


@pytest.mark.parametrize("kind", ["flash", "standard"])
def test_requests_that_come_and_go(kind: str, tmp_path: Path) -> None:
    """Batches of changing size, blocks that run out: the same tokens as without recordings."""
    outputs = []
    workload = {
        "kind": "trace",
        "requests": 8,
        "lengths": {
            "prompt": {"kind": "uniform", "low": 3, "high": 20},
            "output": {"kind": "uniform", "low": 2, "high": 10},
        },
    }
    for mode in ("eager", "compiled"):
        config = settings(
            write_decoder(tmp_path, LLAMA),
            attention={"kind": kind},
            execution={"mode": mode},
            kv_cache={"layout": "paged", "block_tokens": 8},
            batching={"policy": "continuous", "max_sequences": 3},
            workload=workload,
        )
        work = open_workload(load_engine(config), config)
        outputs.append([work.run_round(NullProbe()) for _ in range(2)])
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == outputs[0][1]


@pytest.mark.parametrize(
    ("mode", "device", "layout", "message"),
    [
        ("cuda_graph", "cpu", "paged", "cuda_graph is not available on cpu: a CPU has no such"),
        ("compiled", "cuda:0", "paged", "compiled is not available on cuda:0: no triton, and"),
        ("compiled", "cpu", "none", "every step is longer than the one before"),
        ("cuda_graph", "cuda:0", "none", "every step is longer than the one before"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    mode: str, device: str, layout: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "llmprof.engine.execution.runner.triton_trouble", lambda device: "no triton"
    )
    with pytest.raises(CapabilityError, match=message) as caught:
        make_runner(ExecutionMode(mode), device=device, layout=KvLayout(layout))
    assert caught.value.remedy is not None
