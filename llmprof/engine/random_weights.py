"""Weights made from a configuration alone: right in shape and traffic, meaningless in content."""

import hashlib
import math

import torch

from llmprof.engine.quantization.packed_weight import PackedWeight


class RandomTensors:
    """The same numbers for the same tensor name on the same kind of device.

    Matrices are normal with standard deviation 1 / sqrt(in_features), so that activations keep
    their size and logits stay finite in 16 bits however deep the model is; gains of norms are one,
    biases zero.
    """

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        """Fill `out` in its own dtype, without a larger copy on the way."""
        if name.endswith(".bias"):
            out.zero_()
        elif out.dim() == 1:
            out.fill_(1.0)
        else:
            whose = name if expert is None else f"{name}.{expert}"
            generator = torch.Generator(out.device).manual_seed(_seed(whose))
            out.normal_(0.0, 1 / math.sqrt(out.shape[-1]), generator=generator)

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        """Nothing is packed here."""
        return False


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little")
