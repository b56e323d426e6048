"""Tensor names of llama-family GGUF files and of Hugging Face checkpoints, both ways.

Source: the tensor maps of llama.cpp's gguf-py (constants.py) and the module names of transformers.
"""

import re
from typing import Final

from llmprof.errors import CapabilityError

_GLOBAL: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_MODULES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GLOBAL_BACK: Final = {hf: gguf for gguf, hf in _GLOBAL.items()}
_MODULES_BACK: Final = {hf: gguf for gguf, hf in _MODULES.items()}
_LAYER: Final = re.compile(r"blk\.(0|[1-9]\d{0,3})\.(\w+)\.(weight|bias)", re.ASCII)
_LAYER_BACK: Final = re.compile(
    r"model\.layers\.(0|[1-9]\d{0,3})\.([\w.]+)\.(weight|bias)", re.ASCII
)


def hf_name(gguf_name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`.

    Raises:
        CapabilityError: a tensor that a llama-family decoder does not have.
    """
    match = _LAYER.fullmatch(gguf_name)
    if match and match[2] in _MODULES:
        return f"model.layers.{match[1]}.{_MODULES[match[2]]}.{match[3]}"
    if gguf_name in _GLOBAL:
        return _GLOBAL[gguf_name]
    raise CapabilityError(f"GGUF tensor '{gguf_name}' has no place in a llama-family decoder")


def gguf_name(hf_name: str) -> str:
    """The inverse of `hf_name`.

    Raises:
        CapabilityError: a name that no llama-family GGUF tensor has.
    """
    match = _LAYER_BACK.fullmatch(hf_name)
    if match and match[2] in _MODULES_BACK:
        return f"blk.{match[1]}.{_MODULES_BACK[match[2]]}.{match[3]}"
    if hf_name in _GLOBAL_BACK:
        return _GLOBAL_BACK[hf_name]
    raise CapabilityError(f"tensor '{hf_name}' has no name in a llama-family GGUF file")
