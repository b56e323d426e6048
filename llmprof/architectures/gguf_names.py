"""Tensor names of GGUF files and of Hugging Face checkpoints, both ways.

Source: the tensor maps of llama.cpp's gguf-py (constants.py) and the module names of transformers.
"""

import re
from collections.abc import Mapping
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
    "ffn_gate_inp": "mlp.router",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
_GEMMA: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_OWN: Final[Mapping[str, Mapping[str, str]]] = {
    "gemma2": _MODULES | _GEMMA,
    "gemma3": _MODULES | _GEMMA,
    "phi3": _MODULES | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
}
"""By general.architecture; of all others the modules are the common ones."""
_GLOBAL_BACK: Final = {hf: gguf for gguf, hf in _GLOBAL.items()}
_LAYER: Final = re.compile(r"blk\.(0|[1-9]\d{0,3})\.(\w+)\.(weight|bias)", re.ASCII)
_LAYER_BACK: Final = re.compile(
    r"model\.layers\.(0|[1-9]\d{0,3})\.([\w.]+)\.(weight|bias)", re.ASCII
)


def hf_name(gguf_name: str, architecture: str = "llama") -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`.

    `architecture`: the file's general.architecture.

    Raises:
        CapabilityError: a tensor that such a decoder does not have.
    """
    modules = _OWN.get(architecture, _MODULES)
    match = _LAYER.fullmatch(gguf_name)
    if match and match[2] in modules:
        return f"model.layers.{match[1]}.{modules[match[2]]}.{match[3]}"
    if gguf_name in _GLOBAL:
        return _GLOBAL[gguf_name]
    raise CapabilityError(f"GGUF tensor '{gguf_name}' has no place in a {architecture} decoder")


def gguf_name(hf_name: str, architecture: str = "llama") -> str:
    """The inverse of `hf_name`.

    Raises:
        CapabilityError: a name that no tensor of such a GGUF file has.
    """
    modules = _OWN.get(architecture, _MODULES)
    match = _LAYER_BACK.fullmatch(hf_name)
    found = [own for own, hf in modules.items() if match and hf == match[2]]
    if match and found:
        return f"blk.{match[1]}.{found[0]}.{match[3]}"
    if hf_name in _GLOBAL_BACK:
        return _GLOBAL_BACK[hf_name]
    raise CapabilityError(f"tensor '{hf_name}' has no name in a {architecture} GGUF file")
