"""Which tokens a row may see, computed once per step and used by every layer."""

import torch

from llmprof.engine.step_batch import SequenceRun, StepBatch


class StepMasks:
    """Masks of the runs of one step, made when the first layer asks."""

    def __init__(self) -> None:
        self._made: dict[tuple[SequenceRun, int | None], torch.Tensor | None] = {}
        self._inverted: dict[tuple[SequenceRun, int | None], torch.Tensor | None] = {}

    def begin_step(self) -> None:
        self._made.clear()
        self._inverted.clear()

    def visible(
        self, run: SequenceRun, step: StepBatch, window: int | None = None
    ) -> torch.Tensor | None:
        """True where a row sees a token; None where every row sees all that the run attends to.

        `window`: a row sees at most so many tokens, its own included; None where that hides none.
        [new_tokens, attended_tokens] for sequences of one shape, [sequences, 1, 1, attended_tokens]
        for single tokens that follow different contexts.
        """
        if torch.compiler.is_compiling():  # which sees that all layers compute the same
            return _visible(run, step, window)
        if (run, window) not in self._made:
            self._made[run, window] = _visible(run, step, window)
        return self._made[run, window]

    def hidden(
        self, run: SequenceRun, step: StepBatch, window: int | None = None
    ) -> torch.Tensor | None:
        """True where a row must not see a token: the opposite of `visible`, in the same shape."""
        if torch.compiler.is_compiling():
            return _inverse(self.visible(run, step, window))
        if (run, window) not in self._inverted:
            self._inverted[run, window] = _inverse(self.visible(run, step, window))
        return self._inverted[run, window]


def _inverse(visible: torch.Tensor | None) -> torch.Tensor | None:
    return None if visible is None else ~visible


def _visible(run: SequenceRun, step: StepBatch, window: int | None) -> torch.Tensor | None:
    device = step.ids.device
    if not run.same_context:
        lengths = step.context_lens.narrow(0, run.first_sequence, run.num_sequences)
        tokens = torch.arange(run.attended_tokens, device=device)
        seen = tokens < lengths.unsqueeze(1)
        if window is not None:
            seen &= tokens >= lengths.unsqueeze(1) - window
        return seen.view(run.num_sequences, 1, 1, run.attended_tokens)
    if run.new_tokens == 1 and window is None:
        return None
    seen = torch.ones(run.new_tokens, run.attended_tokens, dtype=torch.bool, device=device)
    seen = seen.tril_(run.cached_tokens)
    return seen if window is None else seen.triu_(run.cached_tokens - window + 1)
