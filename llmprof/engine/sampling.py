"""From logits to the next token of each sequence, on the device."""

import math
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from llmprof.engine.kernels.argmax import argmax
from llmprof.engine.kernels.launch import runs_native
from llmprof.errors import InputError

MIN_TEMPERATURE: Final = 1e-6
"""The largest logits that a model gives, some 1e4, stay far from the end of fp32 (3e38)."""


class Sampler(Protocol):
    @property
    def kernel(self) -> str: ...

    def __call__(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        """Write one token id per sequence: logits [batch, vocab_size], out [batch, 1]."""


class GreedySampler:
    """The most probable token, the first one of equals."""

    def __init__(self) -> None:
        self.kernel = "torch.argmax"

    def __call__(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        if runs_native(logits):
            self.kernel = "llmprof::argmax"
            argmax(logits, out)
            return
        torch.argmax(logits, dim=-1, keepdim=True, out=out)


@dataclass(frozen=True, slots=True)
class RandomSampler:
    """Temperature, then top-k, then nucleus (Holtzman et al. 2019), then a draw."""

    temperature: float
    top_k: int | None
    top_p: float
    generator: torch.Generator

    @property
    def kernel(self) -> str:
        return "torch.softmax, torch.multinomial"

    def __call__(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        probabilities = torch.softmax(logits.float() / self.temperature, dim=-1)
        if self.top_k is not None:
            probabilities = _keep_top_k(probabilities, self.top_k)
        if self.top_p < 1:
            probabilities = _keep_nucleus(probabilities, self.top_p)
        torch.multinomial(probabilities, 1, generator=self.generator, out=out)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen; temperature 0 takes the most probable one."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what would draw from nothing, or be ignored."""
        if not math.isfinite(self.temperature) or self.temperature < 0:
            raise InputError(f"temperature is {self.temperature}, expected 0 or a positive number")
        if 0 < self.temperature < MIN_TEMPERATURE:
            raise InputError(
                f"temperature is {self.temperature}, less than {MIN_TEMPERATURE}, which logits in "
                "fp32 can be divided by",
                remedy="Set 0, which takes the most probable token",
            )
        if not 0 < self.top_p <= 1:
            raise InputError(f"top-p is {self.top_p}, expected more than 0 and at most 1")
        if self.temperature == 0 and (self.top_k is not None or self.top_p < 1):
            raise InputError(
                "top-k and top-p choose among draws, and temperature 0 draws nothing",
                remedy="Set a temperature, for example 0.8",
            )


def make_sampler(options: SamplingOptions, device: str) -> Sampler:
    if options.temperature == 0:
        return GreedySampler()
    generator = torch.Generator(device).manual_seed(options.seed)
    return RandomSampler(options.temperature, options.top_k, options.top_p, generator)


def _keep_top_k(probabilities: torch.Tensor, top_k: int) -> torch.Tensor:
    kept, ids = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
    return torch.zeros_like(probabilities).scatter_(-1, ids, kept)


def _keep_nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The fewest tokens, most probable first, that hold at least `top_p` of all probability."""
    total = probabilities.sum(dim=-1, keepdim=True)
    ordered, ids = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    ordered.masked_fill_(before >= top_p * total, 0)
    return torch.zeros_like(probabilities).scatter_(-1, ids, ordered)
