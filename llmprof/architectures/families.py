"""The decoder families that the engine runs, as data.

Source: the modeling files of Hugging Face transformers.
"""

from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from llmprof.errors import CapabilityError


@dataclass(frozen=True, slots=True)
class Family:
    """How a family departs from the plain Llama decoder."""

    model_type: str
    architecture: str
    """Class name in config.json."""
    attention_bias: Literal["none", "flag", "qkv"]
    """`flag`: on q, k, v and o where the configuration says so; `qkv`: always on q, k and v."""
    mlp_bias_flag: bool = False
    qk_norm: bool = False
    explicit_head_dim: bool = False
    """The published head_dim is not hidden_size / heads, so it may not be left out."""
    window_switch: bool = False
    """A sliding window counts only where `use_sliding_window` is true."""


FAMILIES: Final = {
    family.model_type: family
    for family in (
        Family("llama", "LlamaForCausalLM", attention_bias="flag", mlp_bias_flag=True),
        Family("mistral", "MistralForCausalLM", attention_bias="none"),
        Family("qwen2", "Qwen2ForCausalLM", attention_bias="qkv", window_switch=True),
        Family(
            "qwen3",
            "Qwen3ForCausalLM",
            attention_bias="flag",
            qk_norm=True,
            explicit_head_dim=True,
            window_switch=True,
        ),
    )
}


def refuse_architecture(name: str, where: str) -> NoReturn:
    """Never guess what an unknown family computes."""
    raise CapabilityError(
        f"{where}: the architecture '{name}' is not supported; supported: {', '.join(FAMILIES)}"
    )


def refuse_window(window: int, positions: int, where: str) -> None:
    """Refuse a sliding window that is shorter than the context: attention here is in full.

    Raises:
        CapabilityError: where the window would leave tokens out.
    """
    if window < positions:
        raise CapabilityError(
            f"{where}: attention over a sliding window of {window:,} tokens is not supported "
            f"(the context has {positions:,})"
        )
