"""Weights that stay for the next run: the same ones, once in memory, and nothing else with them."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmprof.architectures.source import resolve_model
from llmprof.engine.engine import Engine
from llmprof.engine.kept_weights import KeptWeights
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.errors import DoesNotFitError
from llmprof.schema.settings import RunConfig
from llmprof.store.progress import NullProgress
from tests.tiny_decoders import LLAMA, load_engine, settings, write_decoder

PLENTY = 2**33


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_decoder(tmp_path / "tiny", LLAMA)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Every time that weights are read from their files."""
    load, seen = Engine.load, []

    def counted(source: Any, config: RunConfig, **others: Any) -> Engine:
        seen.append(config)
        return load(source, config, **others)

    monkeypatch.setattr(Engine, "load", counted)
    return seen


def taken(
    kept: KeptWeights,
    config: RunConfig,
    *,
    threads: int = 1,
    available: Callable[[], int] = lambda: PLENTY,
) -> Engine:
    return kept.engine(
        resolve_model(config.model, weights=config.weights.source),
        config,
        device="cpu",
        threads=threads,
        host_available_bytes=available,
        progress=NullProgress(),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"workload": {"batch": 3}},
        {"kv_cache": {"layout": "paged", "dtype": "int8"}},
        {"kv_cache": {"layout": "none"}},
        {"attention": {"kind": "standard"}},
        {"execution": {"mode": "compiled"}},
        {
            "batching": {"policy": "continuous"},
            "workload": {"kind": "trace", "requests": 2, "prompt_tokens": 512},
        },
    ],
)
def test_other_settings_on_kept_weights_give_the_tokens_of_an_engine_loaded_for_them(
    tiny: Path, change: dict[str, Any], loads: list[RunConfig]
) -> None:
    lengths = {
        "prompt": {"kind": "fixed", "mean": 6, "high": 8},
        "output": {"kind": "fixed", "mean": 3, "high": 4},
    }
    if "batching" in change:
        change = change | {"workload": change["workload"] | {"lengths": lengths}}
    first, other = settings(tiny), settings(tiny, **change)
    kept = KeptWeights()
    open_workload(taken(kept, first), first).run_round(NullProbe())
    again = open_workload(taken(kept, other), other)
    assert len(loads) == 1
    fresh = open_workload(load_engine(other), other)
    assert again.run_round(NullProbe()) == fresh.run_round(NullProbe())
    assert again.describe() == fresh.describe()


@pytest.mark.parametrize(
    ("change", "threads"),
    [
        ({"weights": {"dtype": "bf16"}}, 1),
        ({"weights": {"quantization": "int8", "group_size": 32}}, 1),
        ({"weights": {"source": "random"}}, 1),
        ({}, 2),  # pages lie where the threads that wrote them ran
    ],
)
def test_other_weights_are_loaded_after_the_ones_before_have_gone(
    tiny: Path, change: dict[str, Any], threads: int, loads: list[RunConfig]
) -> None:
    kept = KeptWeights()
    before = weakref.ref(taken(kept, settings(tiny)).decoder.head.weight)
    asked: list[bool] = []

    def available() -> int:
        gc.collect()
        asked.append(before() is None)
        return PLENTY

    taken(kept, settings(tiny, **change), threads=threads, available=available)
    assert len(loads) == 2
    assert asked == [True]


def test_the_cache_and_the_recorded_steps_of_a_run_go_with_it(tiny: Path) -> None:
    config = settings(tiny, execution={"mode": "compiled"})
    kept = KeptWeights()
    engine = taken(kept, config)
    workload: Any = open_workload(engine, config)
    workload.run_round(NullProbe())
    cache: weakref.ref[KvCache] = weakref.ref(workload._batch.cache)
    head = engine.decoder.head.weight
    del workload, engine
    gc.collect()
    assert cache() is None
    assert isinstance(head, torch.Tensor)
    assert taken(kept, config).decoder.head.weight is head


def test_kept_weights_need_no_room_but_a_larger_cache_does(tiny: Path) -> None:
    kept = KeptWeights()
    taken(kept, settings(tiny))
    small = settings(tiny, workload={"prompt_tokens": 4, "output_tokens": 2})
    weights = sum(tensor.stored_bytes for tensor in resolve_model(str(tiny)).manifest.tensors)
    assert weights > 20_000
    taken(kept, small, available=lambda: 20_000)
    with pytest.raises(DoesNotFitError, match="needs"):
        taken(kept, settings(tiny, workload={"batch": 64}), available=lambda: 20_000)
    taken(kept, small, available=lambda: 20_000)  # a refusal drops nothing
