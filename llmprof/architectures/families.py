"""The decoder families that can be described, as data.

Source: the configuration and modeling files of Hugging Face transformers. A default is what the
family's configuration class takes where a published config.json leaves the field out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn

from llmprof.errors import CapabilityError

LLAMA_NORMS: Final = ("input_layernorm", "post_attention_layernorm")
GLM_4_NORMS: Final = (
    "input_layernorm",
    "post_self_attn_layernorm",
    "post_attention_layernorm",
    "post_mlp_layernorm",
)
GEMMA_NORMS: Final = (*LLAMA_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")

WindowRule = Literal["none", "every_layer", "switched", "by_layer_type"]
"""`every_layer`: wherever `sliding_window` is set. `switched`: only with `use_sliding_window`, from
layer `max_window_layers` upwards. `by_layer_type`: where `layer_types` says sliding_attention, and
without that list all but every n-th layer (`window_period`)."""


@dataclass(frozen=True, slots=True)
class Family:
    """How a family departs from the plain Llama decoder."""

    model_type: str
    architectures: tuple[str, ...]
    """Class names in config.json, of the bare decoder and of the one with towers."""
    attention_bias: Literal["none", "flag", "qkv", "qkv_flag"] = "none"
    """`flag`: on q, k, v and o where the configuration says so; `qkv`: always on q, k and v;
    `qkv_flag`: on q, k and v where the configuration says so."""
    mlp_bias_flag: bool = False
    qk_norm: bool = False
    explicit_head_dim: bool = False
    """The published head_dim is not hidden_size / heads, so it may not be left out."""
    window: WindowRule = "none"
    window_period: int | None = None
    """Every n-th layer attends in full."""
    attention: Literal["softmax", "latent", "hybrid", "gemma4"] = "softmax"
    mlp: Literal["dense", "mixtral", "qwen", "deepseek", "gpt_oss", "gemma4"] = "dense"
    fused: bool = False
    """Queries, keys and values, and gate and up, are stored as one matrix each."""
    fused_gate_up: bool = False
    """Gate and up alone are stored as one matrix."""
    rotary_share: float | None = None
    """Share of each head's channels that is rotated where the configuration does not say; None: all
    are, and a configuration that says otherwise is refused or of a kind that is not run."""
    adjacent_pairs: bool = False
    """Rotation turns channels 2i and 2i + 1 against each other, not the halves of a head."""
    gated: bool = True
    output_gate: bool = False
    norms: tuple[str, ...] = LLAMA_NORMS
    tied: bool = False
    """Where the configuration does not say."""
    activations: tuple[str, ...] = ("silu", "swish")
    renamed: Mapping[str, str] = field(default_factory=dict)
    """This family's name of a field -> the usual one."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    text_part: bool = False
    """The published configurations with towers keep the decoder in `text_config`."""
    kv_heads: Literal["stated", "optional", "as_heads", "falcon"] = "stated"
    """`optional`: where the field is left out every head has its own keys and values."""
    own_code: bool = False
    """Published configurations also name code of their own (`auto_map`), which is never run."""
    published_mtp_layers: int = 0
    """Multi-token prediction layers of the checkpoints, where the configuration cannot say."""

    @property
    def plain(self) -> bool:
        """Every layer is the plain one that the flat fields of a ModelConfig describe."""
        return (
            self.attention,
            self.mlp,
            self.fused or self.fused_gate_up,
            self.gated,
            self.norms,
        ) == ("softmax", "dense", False, True, LLAMA_NORMS)


_GELU: Final = ("gelu_pytorch_tanh", "gelu", "gelu_new")
_GEMMA_3: Final = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
    "rope_theta": 1_000_000.0,
}
_GEMMA_4: Final = {
    "vocab_size": 262_144,
    "max_position_embeddings": 131_072,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262_144,
}
_GPT_2_NAMES: Final = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "rms_norm_eps",
    "activation_function": "hidden_act",
}
_FALCON_NAMES: Final = {
    "n_embed": "hidden_size",
    "num_kv_heads": "num_key_value_heads",
    "n_head_kv": "num_key_value_heads",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "ffn_hidden_size": "intermediate_size",
    "layer_norm_epsilon": "rms_norm_eps",
    "activation": "hidden_act",
}


def _glm(model_type: str, architecture: str, norms: tuple[str, ...]) -> Family:
    return Family(
        model_type,
        (architecture,),
        attention_bias="qkv_flag",
        explicit_head_dim=True,
        fused_gate_up=True,
        rotary_share=0.5,
        adjacent_pairs=True,
        norms=norms,
        defaults={"attention_bias": True, "rms_norm_eps": 1.5625e-7},
    )


def _qwen3_5(model_type: str, *architectures: str, mlp: Literal["dense", "qwen"]) -> Family:
    return Family(
        model_type,
        architectures,
        attention_bias="flag",
        qk_norm=True,
        explicit_head_dim=True,
        attention="hybrid",
        mlp=mlp,
        output_gate=True,
        text_part=True,
    )


FAMILIES: Final = {
    family.model_type: family
    for family in (
        Family(
            "llama",
            ("LlamaForCausalLM",),
            attention_bias="flag",
            mlp_bias_flag=True,
            kv_heads="optional",
        ),
        Family(
            "mistral",
            ("MistralForCausalLM",),
            window="every_layer",
            defaults={"sliding_window": 4096},
        ),
        Family("qwen2", ("Qwen2ForCausalLM",), attention_bias="qkv", window="switched"),
        Family(
            "qwen3",
            ("Qwen3ForCausalLM",),
            attention_bias="flag",
            qk_norm=True,
            explicit_head_dim=True,
            window="switched",
        ),
        Family("mixtral", ("MixtralForCausalLM",), window="every_layer", mlp="mixtral"),
        Family(
            "qwen2_moe",
            ("Qwen2MoeForCausalLM",),
            attention_bias="qkv",
            window="switched",
            mlp="qwen",
        ),
        Family(
            "qwen3_moe",
            ("Qwen3MoeForCausalLM",),
            attention_bias="flag",
            qk_norm=True,
            explicit_head_dim=True,
            window="switched",
            mlp="qwen",
            renamed={"num_local_experts": "num_experts"},
        ),
        Family(
            "qwen3_next",
            ("Qwen3NextForCausalLM",),
            attention_bias="flag",
            qk_norm=True,
            explicit_head_dim=True,
            attention="hybrid",
            mlp="qwen",
            output_gate=True,
            published_mtp_layers=1,
        ),
        _qwen3_5("qwen3_5", "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", mlp="dense"),
        _qwen3_5(
            "qwen3_5_moe", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", mlp="qwen"
        ),
        Family(
            "gemma2",
            ("Gemma2ForCausalLM",),
            attention_bias="flag",
            explicit_head_dim=True,
            window="by_layer_type",
            window_period=2,
            norms=GEMMA_NORMS,
            tied=True,
            activations=_GELU,
            defaults={"sliding_window": 4096, "max_position_embeddings": 8192},
        ),
        Family(
            "gemma3",
            ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
            attention_bias="flag",
            qk_norm=True,
            explicit_head_dim=True,
            window="by_layer_type",
            window_period=6,
            norms=GEMMA_NORMS,
            tied=True,
            activations=_GELU,
            defaults=_GEMMA_3,
            text_part=True,
        ),
        Family(
            "gemma4",
            ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
            attention_bias="flag",
            qk_norm=True,
            explicit_head_dim=True,
            window="by_layer_type",
            window_period=6,
            attention="gemma4",
            mlp="gemma4",
            norms=GEMMA_NORMS,
            tied=True,
            activations=_GELU,
            defaults=_GEMMA_4,
            text_part=True,
        ),
        Family(
            "phi3",
            ("Phi3ForCausalLM",),
            window="every_layer",
            fused=True,
            rotary_share=1.0,
            own_code=True,
        ),
        _glm("glm", "GlmForCausalLM", LLAMA_NORMS),
        _glm("glm4", "Glm4ForCausalLM", GLM_4_NORMS),
        Family(
            "deepseek_v2",
            ("DeepseekV2ForCausalLM",),
            attention_bias="flag",
            attention="latent",
            mlp="deepseek",
            kv_heads="optional",
            own_code=True,
        ),
        Family(
            "deepseek_v3",
            ("DeepseekV3ForCausalLM",),
            attention_bias="flag",
            attention="latent",
            mlp="deepseek",
            kv_heads="optional",
            own_code=True,
        ),
        Family(
            "gpt_oss",
            ("GptOssForCausalLM",),
            attention_bias="flag",
            explicit_head_dim=True,
            window="by_layer_type",
            window_period=2,
            mlp="gpt_oss",
            renamed={"experts_per_token": "num_experts_per_tok"},
            defaults={"attention_bias": True, "sliding_window": 128},
        ),
        Family(
            "falcon",
            ("FalconForCausalLM", "RWForCausalLM"),
            fused=True,
            gated=False,
            tied=True,
            activations=_GELU,
            kv_heads="falcon",
            own_code=True,
            renamed=_FALCON_NAMES,
            defaults={"max_position_embeddings": 2048},
        ),
        Family(
            "gpt2",
            ("GPT2LMHeadModel",),
            fused=True,
            gated=False,
            tied=True,
            activations=_GELU,
            kv_heads="as_heads",
            renamed=_GPT_2_NAMES,
        ),
    )
}
_OTHER_NAMES: Final = {
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "RefinedWebModel": "falcon",
    "RefinedWeb": "falcon",
}
"""`model_type` of a decoder inside a model with towers, and of early configurations."""


def find_family(model_type: str, where: str) -> Family:
    """The family of a `model_type`.

    Raises:
        CapabilityError: none that is known.
    """
    name = _OTHER_NAMES.get(model_type, model_type)
    if name not in FAMILIES:
        refuse_architecture(model_type, where)
    return FAMILIES[name]


def refuse_architecture(name: str, where: str) -> NoReturn:
    """Never guess what an unknown family computes."""
    raise CapabilityError(
        f"{where}: the architecture '{name}' is not supported: how its attention caches, and what "
        f"its layers hold, is not known; supported: {', '.join(FAMILIES)}"
    )
