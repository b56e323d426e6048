"""What can be described and not run is refused with the reason."""

import pytest

from llmprof.architectures.presets import preset_config
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.engine.capabilities import check_length
from llmprof.engine.runnable import check_model
from llmprof.errors import CapabilityError
from llmprof.schema.model import RopeScaling, WeightManifest
from llmprof.schema.settings import WeightSource


def source(preset: str) -> ModelSource:
    return resolve_model(preset, weights=WeightSource.RANDOM)


@pytest.mark.parametrize(
    ("preset", "reason"),
    [
        ("deepseek-v3", "latent attention"),
        ("mixtral-8x7b", "mixture of experts"),
        ("qwen3-next-80b-a3b", "linear attention"),
        ("gemma-2-9b", "norms, activations and scales of the family gemma2"),
        ("phi-3-mini-4k", "family phi3"),
        ("gpt2", "family gpt2"),
    ],
)
def test_other_architectures(preset: str, reason: str) -> None:
    with pytest.raises(CapabilityError, match=reason) as refused:
        check_model(source(preset))
    assert refused.value.exit_code == 7


@pytest.mark.parametrize("preset", ["llama-3.1-8b", "mistral-7b-v0.1", "qwen2.5-0.5b", "qwen3-8b"])
def test_plain_decoders_pass(preset: str) -> None:
    check_model(source(preset))


def test_a_window_limits_the_tokens() -> None:
    model = preset_config("mistral-7b-v0.1")
    check_length(model, 4000, 96)
    with pytest.raises(CapabilityError, match=r"4,097 tokens .* window of 4,096"):
        check_length(model, 4000, 97)


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
