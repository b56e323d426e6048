"""A request's state in the engine."""

from dataclasses import dataclass

from llmprof.engine.request_trace import Request


@dataclass(slots=True, eq=False)
class Sequence:
    """How far a request has come. Two sequences are equal only if they are the same one."""

    request: Request
    num_tokens: int
    """Known tokens: the prompt, and what was sampled so far."""
    num_cached: int = 0
    """Those whose keys and values the cache holds."""
    seat: int | None = None
    """Its place in the batch; None while it waits."""
    preemptions: int = 0

    @classmethod
    def of(cls, request: Request) -> "Sequence":
        return cls(request, num_tokens=request.prompt_tokens)

    @property
    def num_sampled(self) -> int:
        return self.num_tokens - self.request.prompt_tokens

    @property
    def is_done(self) -> bool:
        return self.num_sampled >= self.request.output_tokens

    @property
    def num_pending(self) -> int:
        """Known tokens that the cache does not hold."""
        return self.num_tokens - self.num_cached
