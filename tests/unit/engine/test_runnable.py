"""What can be described and not run is refused with the reason."""

from typing import Any

import pytest

from llmprof.architectures.presets import preset_config
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.engine.capabilities import check_length
from llmprof.engine.runnable import check_model, check_switches
from llmprof.errors import CapabilityError, InputError, LlmprofError
from llmprof.schema.model import RopeScaling, WeightManifest
from llmprof.schema.settings import RunConfig, WeightSource


def source(preset: str) -> ModelSource:
    return resolve_model(preset, weights=WeightSource.RANDOM)


@pytest.mark.parametrize(
    ("preset", "reason"),
    [
        ("deepseek-v3", "latent attention"),
        ("deepseek-v2-lite", "latent attention"),
        ("qwen3-next-80b-a3b", "linear attention"),
        ("gpt2", "family gpt2"),
    ],
)
def test_other_architectures(preset: str, reason: str) -> None:
    with pytest.raises(CapabilityError, match=reason) as refused:
        check_model(source(preset))
    assert refused.value.exit_code == 7


@pytest.mark.parametrize(
    "preset",
    [
        "llama-3.1-8b",
        "mistral-7b-v0.1",
        "qwen2.5-0.5b",
        "qwen3-8b",
        "phi-3-mini-4k",
        "mixtral-8x7b",
        "gemma-2-9b",
    ],
)
def test_plain_decoders_pass(preset: str) -> None:
    check_model(source(preset))


def test_longrope_may_not_pass_its_original_context_on_the_way() -> None:
    scaling = RopeScaling(kind="longrope", factor=8, original_max_position_embeddings=4096)
    model = preset_config("phi-3-mini-4k").model_copy(
        update={"rope_scaling": scaling, "max_position_embeddings": 32_768}
    )
    check_length(model, 4000, 96)
    check_length(model, 4097, 96)
    with pytest.raises(CapabilityError, match=r"4,000 tokens that grows to 4,097"):
        check_length(model, 4000, 97)


def moe_run(**groups: dict[str, object]) -> RunConfig:
    weights = {"source": "random", **groups.pop("weights", {})}
    return RunConfig.model_validate({"model": "any", "weights": weights, **groups})


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ({"execution": {"mode": "compiled"}}, "pass other experts each time"),
        ({"weights": {"source": "file"}, "routing": {"kind": "zipf"}}, "the router decides"),
    ],
)
def test_switches_that_experts_do_not_have(groups: dict[str, Any], reason: str) -> None:
    mixtral = preset_config("mixtral-8x7b")
    check_switches(mixtral, moe_run(routing={"kind": "zipf"}, weights={"quantization": "int4"}))
    with pytest.raises(LlmprofError, match=reason):
        check_switches(mixtral, moe_run(**groups))


def test_routing_without_experts() -> None:
    with pytest.raises(InputError, match="has none"):
        check_switches(preset_config("qwen3-8b"), moe_run(routing={"kind": "uniform"}))


def test_rotations_that_the_engine_lacks() -> None:
    plain = source("llama-3.1-8b")
    for scaling in (
        RopeScaling(kind="dynamic", factor=2),
        RopeScaling(kind="yarn", factor=2, truncate=False),
    ):
        model = plain.config.model_copy(update={"rope_scaling": scaling})
        changed = ModelSource(
            name="changed",
            kind="config",
            config=model,
            manifest=plain.manifest,
            files=(),
            tokenizer=None,
            has_weights=False,
        )
        with pytest.raises(CapabilityError, match=f"rotary scaling '{scaling.kind}'"):
            check_model(changed)


def test_a_format_that_cannot_be_loaded_is_named() -> None:
    plain = source("smollm2-135m")
    first = plain.manifest.tensors[0].model_copy(update={"stored_dtype": "q5_0"})
    stored = ModelSource(
        name="packed",
        kind="gguf",
        config=plain.config,
        manifest=WeightManifest(origin="gguf", tensors=(first, *plain.manifest.tensors[1:])),
        files=(),
        tokenizer=None,
        has_weights=True,
    )
    with pytest.raises(CapabilityError, match=r"embed_tokens.weight' is stored as Q5_0"):
        check_model(stored)
