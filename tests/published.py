"""Shapes of public models as their config.json gives them, with figures known from elsewhere.

Parameters are the published exact counts. FLOPs were counted by torch's own counter on another
implementation of each model; they hold every pair of query and key (dense).
"""

from dataclasses import dataclass

from llmprof.schema.model import ModelConfig


def decoder(
    name: str,
    layers: int,
    hidden: int,
    inner: int,
    heads: int,
    kv_heads: int,
    vocab: int,
    *,
    head_dim: int | None = None,
    tied: bool = False,
    bias: bool = False,
    qk_norm: bool = False,
    context: int = 131_072,
) -> ModelConfig:
    return ModelConfig(
        name=name,
        model_type="llama",
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim or hidden // heads,
        vocab_size=vocab,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        attention_bias=bias,
        qk_norm=qk_norm,
        torch_dtype="bf16",
    )


LLAMA_2_7B = decoder("llama-2-7b", 32, 4096, 11008, 32, 32, 32_000, context=4096)
LLAMA_3_1_8B = decoder("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128_256)
LLAMA_3_1_70B = decoder("llama-3.1-70b", 80, 8192, 28672, 64, 8, 128_256)
MISTRAL_7B = decoder("mistral-7b", 32, 4096, 14336, 32, 8, 32_000)
MISTRAL_NEMO = decoder("mistral-nemo", 40, 5120, 14336, 32, 8, 131_072, head_dim=128)
QWEN2_5_05B = decoder("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 151_936, tied=True, bias=True)
QWEN3_06B = decoder(
    "qwen3-0.6b", 28, 1024, 3072, 16, 8, 151_936, head_dim=128, tied=True, qk_norm=True
)
QWEN3_8B = decoder("qwen3-8b", 36, 4096, 12288, 32, 8, 151_936, head_dim=128, qk_norm=True)
SMOLLM2_135M = decoder("smollm2-135m", 30, 576, 1536, 9, 3, 49_152, tied=True)


@dataclass(frozen=True, slots=True)
class Published:
    """One model's figures; `last` counts the head on the last row of the prompt alone."""

    model: ModelConfig
    parameters: int
    kv_bytes_per_token: int
    prefill_512_all: int
    prefill_512_last: int
    prefill_512_last_causal: int
    decode_at_512: int


PUBLISHED = (
    Published(
        LLAMA_2_7B,
        6_738_415_616,
        524_288,
        6_903_086_186_496,
        6_769_130_602_496,
        6_700_545_343_488,
        13_483_114_496,
    ),
    Published(
        LLAMA_3_1_8B,
        8_030_261_248,
        131_072,
        7_822_209_187_840,
        7_285_315_207_168,
        7_216_729_948_160,
        15_278_276_608,
    ),
    Published(
        LLAMA_3_1_70B,
        70_553_706_496,
        327_680,
        71_856_950_345_728,
        70_783_162_384_384,
        70_440_236_089_344,
        140_348_227_584,
    ),
    Published(
        MISTRAL_7B,
        7_241_732_096,
        131_072,
        7_418_482_262_016,
        7_284_526_678_016,
        7_215_941_419_008,
        14_489_747_456,
    ),
    Published(
        QWEN2_5_05B,
        494_032_768,
        12_288,
        528_364_863_488,
        389_235_245_056,
        377_982_976_000,
        1_032_048_640,
    ),
    Published(
        QWEN3_06B,
        596_049_920,
        114_688,
        670_417_551_360,
        511_412_273_152,
        481_406_222_336,
        1_309_638_656,
    ),
    Published(
        QWEN3_8B,
        8_190_735_360,
        147_456,
        7_904_350_437_376,
        7_268_329_324_544,
        7_191_170_908_160,
        15_438_774_272,
    ),
    Published(
        SMOLLM2_135M,
        134_515_008,
        23_040,
        155_826_782_208,
        126_892_376_064,
        117_850_374_144,
        304_418_304,
    ),
)
