"""Logits that are no numbers: found without waiting for the device, and explained."""

from dataclasses import dataclass, field

import torch

from llmprof.engine.sampling import Sampler
from llmprof.errors import MeasurementFailedError


@dataclass(slots=True)
class WatchedSampler:
    """Keeps the logit of every token that its sampler takes, for a look at the end of a round.

    A NaN or an infinity in a hidden state spreads over all logits of its row, so the chosen one is
    enough; in a measured step it costs one gather of a number per sequence.
    """

    sampler: Sampler
    _chosen: list[torch.Tensor] = field(default_factory=list)

    @property
    def kernel(self) -> str:
        return self.sampler.kernel

    def __call__(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        self.sampler(logits, out)
        self._chosen.append(logits.gather(1, out))

    def forget(self) -> None:
        self._chosen.clear()

    def require_finite(self) -> None:
        """Look at the logits since the last call of `forget`; waits for the device.

        Raises:
            MeasurementFailedError: one of them is a NaN or infinite.
        """
        for step, logits in enumerate(self._chosen):
            if not bool(torch.isfinite(logits).all()):
                raise _not_finite(logits.dtype, f"in step {step + 1} of a round")


@dataclass(frozen=True, slots=True)
class CheckingSampler:
    """Looks at all logits before each choice; for text that is generated outside of measurements."""

    sampler: Sampler

    @property
    def kernel(self) -> str:
        return self.sampler.kernel

    def __call__(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        if not bool(torch.isfinite(logits).all()):
            raise _not_finite(logits.dtype, "in a generated token")
        self.sampler(logits, out)


def _not_finite(dtype: torch.dtype, where: str) -> MeasurementFailedError:
    half = dtype is torch.float16
    return MeasurementFailedError(
        f"the model's logits are NaN or infinite {where}",
        remedy="fp16 ends at 65504: set weights.dtype=bf16"
        if half
        else "Check the weights file (llmprof generate shows whether it still writes text)",
    )
