"""What torch.compile made of decode steps, and how long that took."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

Made = Callable[..., Any]
"""What a backend of torch.compile makes of a graph, called with the graph's inputs."""

INDUCTOR: Final = "inductor"


@dataclass(slots=True)
class Compilations:
    """Told by the compiler itself: one that nobody expected counts like any other."""

    count: int = 0
    seconds: float = 0.0
    """Of the calls in which there was something to compile, their one step included."""
    backend: str = INDUCTOR
    """What compiles: a name that `torch.compile` knows."""

    def compile(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Made:
        """As a backend of `torch.compile`: that of its name, counted."""
        from torch._dynamo import lookup_backend

        self.count += 1
        return lookup_backend(self.backend)(graph, inputs)
