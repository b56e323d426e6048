"""Rotary position embedding (Su et al. 2021), half-split as in Hugging Face checkpoints.

Channel i of a head is paired with channel i + rotary_dim / 2, and pair i of the token at position p
is turned by the angle p * frequency_i. Channels from rotary_dim on are left as they are.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from llmprof.architectures.gguf_rope import llama3_factors
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.pointwise import gpu_kernels
from llmprof.engine.kernels.rotary import rotate_ as rotate_native_
from llmprof.errors import CapabilityError
from llmprof.schema.model import ModelConfig, RopeScaling

Turn = tuple[torch.Tensor, ...]
"""Cosines and sines of each row's position; then those of layers within a window, if they differ."""
EVERYWHERE: Final = 0
WITHIN_WINDOW: Final = 2
"""Where in a `Turn` the two tables are that a layer rotates by."""


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Cosines and signed sines of every position."""

    tables: torch.Tensor
    """[2, max_tokens, 1, rotary_dim]; sines are negative in the first half: x * cos + roll(x) * sin is
    the rotation. One tensor, since a step looks both up."""
    window: "RotaryTable | None" = None
    """Of layers that attend within a window, where they rotate otherwise (Gemma 3)."""

    @classmethod
    def of(
        cls, model: ModelConfig, max_tokens: int, dtype: torch.dtype, device: str
    ) -> "RotaryTable":
        """Angles are computed in fp32, as the models are trained, and rounded to `dtype` once.

        longrope has other frequencies where `max_tokens` are more than its original context.
        """
        table = cls._made(
            frequencies(model, max_tokens), attention_factor(model), max_tokens, dtype, device
        )
        if model.window_rope_theta is None:
            return table
        within = frequencies(
            model.model_copy(update={"rope_theta": model.window_rope_theta, "rope_scaling": None})
        )
        return dataclasses.replace(table, window=cls._made(within, 1.0, max_tokens, dtype, device))

    @classmethod
    def _made(
        cls,
        turns: torch.Tensor,
        scale: float,
        max_tokens: int,
        dtype: torch.dtype,
        device: str,
    ) -> "RotaryTable":
        positions = torch.arange(max_tokens, dtype=torch.float32)
        angles = torch.outer(positions, turns)
        cos, sin = (part * scale for part in _cos_and_sin(angles))
        tables = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        return cls(torch.stack(tables).unsqueeze(2).to(device, dtype))

    def at(self, positions: torch.Tensor) -> Turn:
        """Copies of the rows of these positions [rows], each [rows, 1, rotary_dim]."""
        turn = self.tables.index_select(1, positions).unbind(0)
        return turn if self.window is None else (*turn, *self.window.at(positions))


def _cos_and_sin(angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In fp64 by NumPy, rounded once: the same in every process.

    torch's own go through MKL, whose first call in a process may be off by 1e-4 in the half of the
    second thread (see `vector_math_start`): then all that the process writes is another text.
    """
    exact = angles.numpy().astype(np.float64)
    cos, sin = (part.astype(np.float32) for part in (np.cos(exact), np.sin(exact)))
    return torch.from_numpy(cos), torch.from_numpy(sin)


def rotate_(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate the first channels of [rows, heads, head_dim] in place, by tables [rows, 1, rotary_dim]."""
    if cos.shape[-1] != heads.shape[-1]:
        heads = heads.narrow(-1, 0, cos.shape[-1])
    if runs_native(heads):
        rotate_native_(heads, cos, sin)
        return
    kernels = gpu_kernels(heads)
    if kernels is not None:
        kernels.rotate_(heads, cos, sin)
        return
    swapped = heads.roll(heads.shape[-1] // 2, -1)
    heads.mul_(cos).addcmul_(swapped, sin)


def kernel_name(device: str) -> str:
    if runs_native(device):
        return "llmprof::rotate_"
    on_gpu = gpu_kernels(device) is not None
    return "llmprof::triton_rotate_" if on_gpu else "torch.roll, torch.addcmul"


def frequencies(model: ModelConfig, max_tokens: int = 1) -> torch.Tensor:
    """Radians per position of each channel pair, [rotary_dim / 2], scaled as the model asks."""
    exponents = torch.arange(0, model.rotary_dim, 2, dtype=torch.float32) / model.rotary_dim
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
        case "longrope":
            return plain / torch.tensor(_longrope_divisors(model, scaling, max_tokens))
        case "dynamic":
            raise CapabilityError(f"rotary scaling '{scaling.kind}' is not available")


def attention_factor(model: ModelConfig) -> float:
    """What YaRN (Peng et al. 2023, section 3.4) and LongRoPE (Ding et al. 2024) scale by.

    Queries and keys are multiplied by it; 1 where nothing is scaled so.
    """
    scaling = model.rope_scaling
    if scaling is None or scaling.kind not in ("yarn", "longrope"):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.kind == "longrope":
        original = scaling.original_max_position_embeddings or model.max_position_embeddings
        if scaling.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(scaling.factor) / math.log(original))
    if scaling.mscale and scaling.mscale_all_dim:
        return _temperature(scaling.factor, scaling.mscale) / _temperature(
            scaling.factor, scaling.mscale_all_dim
        )
    return _temperature(scaling.factor, 1.0)


def _temperature(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope_divisors(
    model: ModelConfig, scaling: RopeScaling, max_tokens: int
) -> tuple[float, ...]:
    """Those of short sequences up to the original context, else those of long ones."""
    original = scaling.original_max_position_embeddings or model.max_position_embeddings
    found = scaling.long_factors if max_tokens > original else scaling.short_factors
    if len(found) != model.rotary_dim // 2:
        raise CapabilityError(
            f"{model.name}: longrope has {len(found)} factors, and a head has "
            f"{model.rotary_dim // 2} frequencies"
        )
    return found


def _llama3_divisors(model: ModelConfig, scaling: RopeScaling) -> list[float]:
    context = scaling.original_max_position_embeddings
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    if context is None or low is None or high is None:
        raise CapabilityError(
            f"{model.name}: llama3 rotary scaling needs low_freq_factor, high_freq_factor and "
            "original_max_position_embeddings"
        )
    return llama3_factors(
        model.rotary_dim,
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
    low, high = max(low, 0), min(high, model.rotary_dim - 1)
    pairs = torch.arange(model.rotary_dim // 2, dtype=torch.float32)
    stretched = ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / scaling.factor * stretched + plain * (1 - stretched)


def _pair_of_turns(model: ModelConfig, turns: float, context: int) -> float:
    """The (fractional) pair that turns so many times within the trained context."""
    ratio = math.log(context / (turns * 2 * math.pi))
    return model.rotary_dim * ratio / (2 * math.log(model.rope_theta))
