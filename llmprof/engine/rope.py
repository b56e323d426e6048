"""Rotary position embedding (Su et al. 2021), half-split as in Hugging Face checkpoints.

Channel i of a head is paired with channel i + head_dim / 2, and pair i of the token at position p
is turned by the angle p * frequency_i.
"""

import math
from dataclasses import dataclass

import torch

from llmprof.architectures.gguf_rope import llama3_factors
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.rotary import rotate_ as rotate_native_
from llmprof.errors import CapabilityError
from llmprof.schema.model import ModelConfig, RopeScaling


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Cosines and signed sines of every position, [max_tokens, 1, head_dim]."""

    cos: torch.Tensor
    sin: torch.Tensor
    """Negative in the first half: x * cos + roll(x) * sin is the rotation."""

    @classmethod
    def of(
        cls, model: ModelConfig, max_tokens: int, dtype: torch.dtype, device: str
    ) -> "RotaryTable":
        """Angles are computed in fp32, as the models are trained, and rounded to `dtype` once."""
        positions = torch.arange(max_tokens, dtype=torch.float32)
        angles = torch.outer(positions, frequencies(model))
        scale = attention_factor(model.rope_scaling)
        cos, sin = angles.cos() * scale, angles.sin() * scale
        tables = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        return cls(*(table.unsqueeze(1).to(device, dtype) for table in tables))

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the rows of these positions [rows], each [rows, 1, head_dim]."""
        return self.cos.index_select(0, positions), self.sin.index_select(0, positions)


def rotate_(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate [rows, heads, head_dim] in place, by tables [rows, 1, head_dim]."""
    if runs_native(heads):
        rotate_native_(heads, cos, sin)
        return
    swapped = heads.roll(heads.shape[-1] // 2, -1)
    heads.mul_(cos).addcmul_(swapped, sin)


def kernel_name(device: str) -> str:
    return "llmprof::rotate_" if runs_native(device) else "torch.roll, torch.addcmul"


def frequencies(model: ModelConfig) -> torch.Tensor:
    """Radians per position of each channel pair, [head_dim / 2], scaled as the model asks."""
    exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float32) / model.head_dim
    plain = 1.0 / model.rope_theta**exponents
    scaling = model.rope_scaling
    if scaling is None:
        return plain
    match scaling.kind:
        case "linear":
            return plain / scaling.factor
        case "llama3":
            return plain / torch.tensor(_llama3_divisors(model, scaling))
        case "yarn":
            return _yarn(model, scaling, plain)
        case "dynamic" | "longrope":
            raise CapabilityError(f"rotary scaling '{scaling.kind}' is not available")


def attention_factor(scaling: RopeScaling | None) -> float:
    """What YaRN multiplies queries and keys by (Peng et al. 2023, section 3.4); 1 otherwise."""
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all_dim:
        return _temperature(scaling.factor, scaling.mscale) / _temperature(
            scaling.factor, scaling.mscale_all_dim
        )
    return _temperature(scaling.factor, 1.0)


def _temperature(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _llama3_divisors(model: ModelConfig, scaling: RopeScaling) -> list[float]:
    context = scaling.original_max_position_embeddings
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    if context is None or low is None or high is None:
        raise CapabilityError(
            f"{model.name}: llama3 rotary scaling needs low_freq_factor, high_freq_factor and "
            "original_max_position_embeddings"
        )
    return llama3_factors(
        model.head_dim,
        model.rope_theta,
        factor=scaling.factor,
        low=low,
        high=high,
        context=context,
    )


def _yarn(model: ModelConfig, scaling: RopeScaling, plain: torch.Tensor) -> torch.Tensor:
    """YaRN's NTK-by-parts: fast pairs keep their frequency, slow ones are stretched by the factor.

    Source: Peng et al. 2023, section 3.2; the bounds are whole pair numbers, as in transformers.
    """
    context = scaling.original_max_position_embeddings or model.max_position_embeddings
    low = math.floor(_pair_of_turns(model, scaling.beta_fast, context))
    high = math.ceil(_pair_of_turns(model, scaling.beta_slow, context))
    low, high = max(low, 0), min(high, model.head_dim - 1)
    pairs = torch.arange(model.head_dim // 2, dtype=torch.float32)
    stretched = ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / scaling.factor * stretched + plain * (1 - stretched)


def _pair_of_turns(model: ModelConfig, turns: float, context: int) -> float:
    """The (fractional) pair that turns so many times within the trained context."""
    ratio = math.log(context / (turns * 2 * math.pi))
    return model.head_dim * ratio / (2 * math.log(model.rope_theta))
