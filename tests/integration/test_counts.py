"""Costs from shapes alone against the operators that the engine really ran, to the last FLOP."""

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource
from llmprof.costs.memory import kv_bytes_reserved, kv_bytes_used
from llmprof.costs.options import options_from
from llmprof.costs.step import step_cost
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.model import ModelConfig
from llmprof.schema.run import CountedStep
from llmprof.schema.settings import (
    AttentionKind,
    AttentionSettings,
    ContextKind,
    KvCacheSettings,
    KvLayout,
    RunConfig,
    WeightSource,
    WeightsSettings,
    WorkloadSettings,
)
from tests.published import SMOLLM2_135M, decoder

GROUPED = decoder("grouped", 2, 48, 40, 6, 2, 90, head_dim=8, context=64)
BIASED_TIED = decoder("biased", 2, 48, 40, 6, 3, 90, tied=True, bias=True, context=64)
NORMED = decoder("normed", 2, 32, 40, 6, 2, 90, head_dim=8, qk_norm=True, context=64)


def settings(
    *,
    attention: AttentionKind = AttentionKind.FLASH,
    layout: KvLayout = KvLayout.CONTIGUOUS,
    context: ContextKind = ContextKind.REAL,
    batch: int = 1,
    prompt_tokens: int = 9,
    output_tokens: int = 3,
) -> RunConfig:
    return RunConfig(
        model="any",
        weights=WeightsSettings(source=WeightSource.RANDOM),
        attention=AttentionSettings(kind=attention),
        kv_cache=KvCacheSettings(layout=layout),
        workload=WorkloadSettings(
            batch=batch,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            context=context,
        ),
    )


def workload(model: ModelConfig, config: RunConfig) -> EngineWorkload:
    source = ModelSource(
        name=model.name,
        kind="config",
        config=model,
        manifest=manifest_from_config(model, "bf16"),
        files=(),
        tokenizer=None,
        has_weights=False,
    )
    engine = Engine.load(source, config, device="cpu", threads=2, host_available_bytes=2**34)
    return EngineWorkload(engine, config)


def check_counts(model: ModelConfig, config: RunConfig) -> tuple[CountedStep, ...]:
    work = workload(model, config)
    recorder = OpRecorder()
    with recorder:
        work.run_round(recorder)
    manifest = work.weights
    assert manifest is not None
    options = options_from(config, compute_dtype="bf16", kv_dtype="bf16")
    for step in recorder.steps():
        assert not [op.op for op in step.ops if op.missing_formula]
        expected = step_cost(model, manifest, step.shape, options)
        for group in OpGroup:
            counted = sum(op.flops or 0 for op in step.ops if op.group is group)
            assert counted == expected.of_groups(group).flops_dense, (step.shape, group)
    return recorder.steps()


def test_a_512_token_prefill_and_its_decode() -> None:
    prefill, decode = check_counts(SMOLLM2_135M, settings(prompt_tokens=512, output_tokens=2))
    assert prefill.shape.phase is Phase.PREFILL
    assert sum(op.flops or 0 for op in prefill.ops) == 126_892_376_064
    assert decode.shape.cached_tokens == 512
    assert sum(op.flops or 0 for op in decode.ops) == 304_418_304


@pytest.mark.parametrize("layout", [KvLayout.CONTIGUOUS, KvLayout.NONE])
@pytest.mark.parametrize("attention", AttentionKind)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("model", [GROUPED, BIASED_TIED, NORMED], ids=lambda model: model.name)
def test_every_switch_and_shape(
    model: ModelConfig, batch: int, attention: AttentionKind, layout: KvLayout
) -> None:
    steps = check_counts(model, settings(attention=attention, layout=layout, batch=batch))
    phases = [step.shape.phase for step in steps]
    assert phases == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]


def test_a_filled_cache_without_a_prefill() -> None:
    steps = check_counts(GROUPED, settings(context=ContextKind.SYNTHETIC, batch=2))
    assert [step.shape.cached_tokens for step in steps] == [2 * 9, 2 * 10]


@pytest.mark.parametrize("layout", [KvLayout.CONTIGUOUS, KvLayout.NONE])
def test_the_engines_bytes_are_those_of_costs(layout: KvLayout) -> None:
    config = settings(layout=layout, batch=3)
    work = workload(GROUPED, config)
    work.run_round(OpRecorder())
    found = work.describe()
    options = options_from(config, compute_dtype="bf16", kv_dtype=found.kv_dtype)
    # the last output token is sampled and never cached
    assert found.kv_bytes_used == kv_bytes_used(GROUPED, options, (11,) * 3)
    assert found.kv_bytes_reserved == kv_bytes_reserved(GROUPED, options, (11,) * 3, max_tokens=12)
    assert found.weight_bytes == manifest_from_config(GROUPED, "bf16").stored_bytes
