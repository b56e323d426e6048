"""Bytes by `costs` against the sizes of the tensors that the ops of a step were handed."""

from typing import Any

import pytest

from llmprof.costs.step import step_cost
from llmprof.engine.description import cost_options
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import RunConfig
from tests.integration.test_counts import BIASED_TIED, NORMED, PACKABLE, load
from tests.published import decoder
from tests.touched_bytes import TouchedBytes

UNTIED = decoder("untied", 2, 64, 96, 4, 2, 90, bias=True, context=64)
WEIGHTS: tuple[dict[str, object], ...] = (
    {},
    {"quantization": "int8"},
    {"quantization": "int8", "group_size": "channel"},
    {"quantization": "int4"},
    {"quantization": "int4", "group_size": 64, "symmetric": True},
)
CACHES: tuple[dict[str, object], ...] = (
    {"layout": "contiguous"},
    {"layout": "contiguous", "dtype": "int8"},
    {"layout": "paged", "block_tokens": 8},
    {"layout": "paged", "dtype": "fp8"},
    {"layout": "paged", "dtype": "int8"},
)


def config(**groups: dict[str, Any]) -> RunConfig:
    base: dict[str, Any] = {
        "model": "any",
        "weights": {"source": "random"},
        "workload": {"batch": 3, "prompt_tokens": 20, "output_tokens": 3},
    }
    for key, value in groups.items():
        base[key] = {**base.get(key, {}), **value}
    return RunConfig.model_validate(base)


def check(model: ModelConfig, settings: RunConfig) -> set[str]:
    """Returns what kinds of KV traffic and copies there were."""
    engine = load(model, settings)
    work = EngineWorkload(engine, settings)
    options = cost_options(engine, settings)
    touched = TouchedBytes(engine, work._batch.cache)
    with touched:
        work.run_round(touched)
    seen: set[str] = set()
    for shape, weights, moved in zip(touched.shapes, touched.weights, touched.moved, strict=True):
        cost = step_cost(model, engine.manifest, shape, options)
        for group in (*PROJECTIONS, OpGroup.EMBEDDING):
            assert weights[group] == cost.of_groups(group).traffic.weights, (shape, group)
        assert sum(weights.values()) == pytest.approx(cost.traffic.weights, rel=0.01)
        assert moved["kv_write"] == cost.traffic.kv_write
        copies = 2 * (moved["unpacked"] + moved["gathered"])
        assert copies == cost.traffic.copies, shape
        if not moved["gathered"]:
            assert moved["kv_read"] == pytest.approx(cost.traffic.kv_read, rel=0.01)
        seen |= {kind for kind, size in moved.items() if size}
    return seen


@pytest.mark.parametrize("weights", WEIGHTS, ids=lambda one: "-".join(map(str, one.values())))
@pytest.mark.parametrize("model", [PACKABLE, UNTIED], ids=lambda model: model.name)
def test_weights_are_read_as_they_are_stored(
    model: ModelConfig, weights: dict[str, object]
) -> None:
    seen = check(model, config(weights=weights))
    assert seen == {"kv_read", "kv_write"} | ({"unpacked"} if weights else set())


@pytest.mark.parametrize("cache", CACHES, ids=lambda one: "-".join(map(str, one.values())))
@pytest.mark.parametrize("attention", ["flash", "standard"])
@pytest.mark.parametrize("model", [NORMED, BIASED_TIED], ids=lambda model: model.name)
def test_the_cache_is_read_and_written_as_it_is_stored(
    model: ModelConfig, attention: str, cache: dict[str, object]
) -> None:
    seen = check(model, config(kv_cache=cache, attention={"kind": attention}))
    gathers = attention == "standard" and cache != CACHES[0]
    assert seen == {"kv_write", "gathered" if gathers else "kv_read"}


@pytest.mark.parametrize("batch", [1, 5])
def test_both_kinds_of_packing_together(batch: int) -> None:
    weights, cache = {"quantization": "int4"}, {"layout": "paged", "dtype": "int8"}
    work = {"batch": batch, "prompt_tokens": 33, "output_tokens": 3}
    settings = config(weights=weights, kv_cache=cache, workload=work)
    assert check(PACKABLE, settings) == {"kv_read", "kv_write", "unpacked"}


def test_a_filled_cache_of_a_long_context() -> None:
    work = {"batch": 2, "prompt_tokens": 56, "output_tokens": 3, "context": "synthetic"}
    settings = config(workload=work, kv_cache={"layout": "paged", "block_tokens": 8})
    phases = [shape.phase for shape in EngineWorkload(load(NORMED, settings), settings)._shapes]
    assert phases == [Phase.DECODE] * 2
    assert check(NORMED, settings) == {"kv_read", "kv_write"}
