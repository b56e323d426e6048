"""What a decode step costs the host in each execution mode, on models too small to cost anything else.

Between their ops other bytes pass through a CPU's caches, as weights would in a real step.
"""

from collections.abc import Iterator
from statistics import median
from typing import Final

import torch

from llmprof import units
from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource
from llmprof.ceilings.passing_weights import PassingWeights, WeightStream
from llmprof.ceilings.timing import Rates
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.execution import make_runner
from llmprof.engine.probe import NullProbe
from llmprof.errors import CapabilityError
from llmprof.instruments.clock import NS_PER_S, HostClock
from llmprof.instruments.host_memory import host_memory
from llmprof.schema.ceilings import HostCost
from llmprof.schema.cost import PROJECTIONS
from llmprof.schema.environment import Environment
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import (
    ExecutionMode,
    ExecutionSettings,
    KvLayout,
    RunConfig,
    WeightDtype,
    WeightSource,
    WeightsSettings,
    WorkloadSettings,
)
from llmprof.store.progress import Progress

FEW_LAYERS: Final = 2
MANY_LAYERS: Final = 12
_STEPS: Final = 24
"""Of a round: one synchronisation for all of them, as in a run."""
_WARM_ROUNDS: Final = 2
_FEWEST_ROUNDS: Final = 5
_DTYPE: Final = "bf16"
_PASSING_BYTES: Final = 4 << 20
"""Before each product: what a layer of a billion parameters brings, and more than a core's own cache."""
_STREAM_BYTES: Final = 512 << 20


def measure_host_costs(
    environment: Environment, device: str, *, budget_s: float, progress: Progress
) -> tuple[HostCost, ...]:
    """One per mode that the device has, in about `budget_s`."""
    modes = _modes(device)
    stream = WeightStream(_STREAM_BYTES, device) if device == "cpu" else None
    costs = []
    for done, mode in enumerate(modes):
        progress.update("host cost", done, len(modes))
        costs.append(_of_mode(mode, environment, device, stream, budget_s / len(modes)))
    progress.update("host cost", len(modes), len(modes))
    return tuple(costs)


def _modes(device: str) -> tuple[ExecutionMode, ...]:
    """Those that the engine does not refuse, but for torch.compile on a GPU.

    What it makes of a tiny model, after a minute, tells nothing of another one.
    """
    possible = []
    for mode in ExecutionMode:
        if mode is ExecutionMode.COMPILED and device != "cpu":
            continue
        try:
            make_runner(mode, device=device, layout=KvLayout.CONTIGUOUS)
        except CapabilityError:
            continue
        possible.append(mode)
    return tuple(possible)


def _of_mode(
    mode: ExecutionMode,
    environment: Environment,
    device: str,
    stream: WeightStream | None,
    budget_s: float,
) -> HostCost:
    few, many = (
        _step_times_s(mode, layers, environment, device, stream, budget_s / 2)
        for layers in (FEW_LAYERS, MANY_LAYERS)
    )
    per_layer_s = (min(many) - min(few)) / (MANY_LAYERS - FEW_LAYERS)
    return HostCost(
        mode=mode.value,
        seconds_per_step=min(few),
        median_s=median(few),
        spread=Rates(tuple(1 / one for one in few)).spread,
        layers=FEW_LAYERS,
        seconds_per_layer=max(0.0, per_layer_s),
        method=(
            f"best of {len(few)} rounds of {_STEPS} decode steps of {FEW_LAYERS} layers with "
            f"hidden size {_tiny_model(FEW_LAYERS).hidden_size}, one synchronisation per round"
            + (f", {units.byte_count(_PASSING_BYTES)} read before each product and not counted")
            * (stream is not None)
        ),
    )


def _step_times_s(
    mode: ExecutionMode,
    layers: int,
    environment: Environment,
    device: str,
    stream: WeightStream | None,
    budget_s: float,
) -> list[float]:
    """Seconds per step of each round, without what passes by; no synchronisation inside a round.

    Nothing passes by on a GPU: the host's caches never see its weights, and a graph whose groups are
    observed would go kernel by kernel.
    """
    workload = _workload(mode, layers, environment, device)
    passing_bytes = dict.fromkeys(PROJECTIONS, _PASSING_BYTES) if stream else {}
    clock = HostClock()
    for _ in range(_WARM_ROUNDS):
        workload.run_round(NullProbe())
    times_s: list[float] = []
    for _ in _rounds(clock, budget_s):
        passing = PassingWeights(NullProbe(), stream, passing_bytes) if stream else None
        begin_ns = clock.now_ns()
        workload.run_round(passing or NullProbe())  # its digest waits for the device
        whole_s = (clock.now_ns() - begin_ns) / NS_PER_S
        times_s.append((whole_s - (passing.taken_s if passing else 0.0)) / _STEPS)
    return times_s


def _rounds(clock: HostClock, budget_s: float) -> Iterator[int]:
    deadline_ns = clock.now_ns() + budget_s * NS_PER_S
    done = 0
    while done < _FEWEST_ROUNDS or clock.now_ns() < deadline_ns:
        yield done
        done += 1


def _workload(
    mode: ExecutionMode, layers: int, environment: Environment, device: str
) -> EngineWorkload:
    model = _tiny_model(layers)
    config = RunConfig(
        model=model.name,
        weights=WeightsSettings(source=WeightSource.RANDOM, dtype=WeightDtype.BF16),
        execution=ExecutionSettings(mode=mode),
        workload=WorkloadSettings(prompt_tokens=1, output_tokens=_STEPS),
    )
    source = ModelSource(
        name=model.name,
        kind="config",
        config=model,
        manifest=manifest_from_config(model, _DTYPE),
        files=(),
        tokenizer=None,
        has_weights=False,
    )
    engine = Engine.load(
        source,
        config,
        device=device,
        threads=environment.threads,
        host_available_bytes=host_memory().available_bytes,
    )
    with torch.inference_mode():
        return EngineWorkload(engine, config)


def _tiny_model(layers: int) -> ModelConfig:
    """All of its weights fit into a first-level cache, and an op is done before the next one starts."""
    return ModelConfig(
        name="host cost",
        model_type="llama",
        num_hidden_layers=layers,
        hidden_size=64,
        intermediate_size=64,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        vocab_size=64,
        max_position_embeddings=2 * _STEPS,
    )
