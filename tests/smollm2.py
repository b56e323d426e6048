"""SmolLM2-135M as a configuration and a manifest, written by hand."""

import numpy as np

from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest


def a_model() -> ModelConfig:
    """SmolLM2-135M."""
    return ModelConfig(
        name="smollm2-135m",
        model_type="llama",
        num_hidden_layers=30,
        hidden_size=576,
        intermediate_size=1536,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        vocab_size=49152,
        max_position_embeddings=8192,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        torch_dtype="bf16",
    )


def a_manifest(model: ModelConfig | None = None) -> WeightManifest:
    """Every tensor of a llama model with a tied head, stored in bf16."""
    model = model or a_model()
    hidden, inner = model.hidden_size, model.intermediate_size
    layer = {
        "self_attn.q_proj": (model.query_size, hidden),
        "self_attn.k_proj": (model.kv_size, hidden),
        "self_attn.v_proj": (model.kv_size, hidden),
        "self_attn.o_proj": (hidden, model.query_size),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (model.vocab_size, hidden)}
    for index in range(model.num_hidden_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm"] = (hidden,)
    return WeightManifest(
        origin="gguf",
        tensors=tuple(
            TensorSpec(
                name=f"{name}.weight",
                shape=shape,
                stored_dtype="bf16",
                stored_bytes=2 * int(np.prod(shape)),
            )
            for name, shape in shapes.items()
        ),
    )
