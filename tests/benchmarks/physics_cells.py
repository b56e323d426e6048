"""Engines in several settings whose steps are timed in turn."""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.static_batch import StaticBatch
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.snapshot import resolve_threads
from llmprof.schema.settings import RunConfig

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Cell:
    """One engine and a batch of it."""

    engine: Engine
    batch: StaticBatch

    def decode_s(self, context: int, steps: int) -> float:
        """Seconds per decode step that starts with `context` cached tokens."""
        self.at(context)
        self._step()
        self.at(context)
        start = time.perf_counter()
        for _ in range(steps):
            self._step()
        return (time.perf_counter() - start) / steps

    def prefill_s(self) -> float:
        self.batch.restart()
        start = time.perf_counter()
        self._step()
        return time.perf_counter() - start

    def at(self, context: int) -> None:
        """So many tokens of the cache count, whatever it holds."""
        self.batch.num_cached = context if self.batch.cache.appends else 0
        self.batch.num_tokens = context + 1

    def _step(self) -> None:
        self.engine.step(self.batch, GreedySampler(), NullProbe())


def cell(
    model: str | Mapping[str, Any], tokens: int, /, *, sequences: int = 1, **groups: Any
) -> Cell:
    """An engine with a filled cache of so many tokens; a mapping is a config.json for random weights."""
    with ExitStack() as stack:
        if not isinstance(model, str):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(model))
            model = str(file)
        config = RunConfig.model_validate({"model": model, **groups})
        engine = load(config)
    batch = engine.open_batch(torch.zeros((sequences, tokens), dtype=torch.long), output_tokens=64)
    if hasattr(batch.cache, "fill_random"):
        batch.cache.fill_random(0)
    return Cell(engine, batch)


def load(config: RunConfig) -> Engine:
    return Engine.load(
        resolve_model(config.model, weights=config.weights.source),
        config,
        device="cpu",
        threads=resolve_threads(None),
        host_available_bytes=host_memory().available_bytes,
    )


def in_turn(rounds: int, cells: Mapping[Name, Callable[[], float]]) -> dict[Name, list[float]]:
    """Every cell once per round, forwards and backwards by turns."""
    seconds: dict[Name, list[float]] = {name: [] for name in cells}
    for number in range(rounds):
        names = list(cells)
        for name in names if number % 2 == 0 else reversed(names):
            seconds[name].append(cells[name]())
    return seconds


def median_ms(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)
