"""Every preset gives the published number of parameters."""

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.presets import preset_config, preset_names

PARAMETERS = {
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-7b-v0.1": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-next-80b-a3b": 79_674_391_296,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_432_406_640 - 423_060_336,
    "phi-3-mini-4k": 3_821_079_552,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gpt2": 124_439_808,
    "tinyllama-1.1b": 1_100_048_384,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-235b-a22b": 235_093_634_560,
    "mistral-small-24b": 23_572_403_200,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-4b": 4_300_079_472 - 419_816_304,
    "gemma-3-12b": 12_187_325_040 - 421_290_864,
    "phi-4": 14_659_507_200,
    "mixtral-8x22b": 140_620_634_112,
    "falcon-7b": 6_921_720_704,
    "gpt2-xl": 1_557_611_200,
}


def test_every_preset_is_in_this_table() -> None:
    assert list(preset_names()) == list(PARAMETERS)


def test_a_vision_tower_is_counted_apart() -> None:
    vision = preset_config("gemma-3-27b").vision
    assert vision is not None
    assert vision.parameters == 423_060_336


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    assert manifest_from_config(preset_config(name), "bf16").parameters == PARAMETERS[name]


def test_the_context_is_the_stated_one() -> None:
    llama = preset_config("llama-3.1-8b")
    assert llama.rope_scaling is not None
    assert llama.rope_scaling.factor == 8
    assert llama.max_position_embeddings == 131_072
