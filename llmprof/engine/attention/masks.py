"""Which tokens a row may see, computed once per step and used by every layer."""

import torch

from llmprof.engine.step_batch import SequenceRun, StepBatch


class StepMasks:
    """Masks of the runs of one step, made when the first layer asks."""

    def __init__(self) -> None:
        self._made: dict[SequenceRun, torch.Tensor | None] = {}
        self._inverted: dict[SequenceRun, torch.Tensor | None] = {}

    def begin_step(self) -> None:
        self._made.clear()
        self._inverted.clear()

    def visible(self, run: SequenceRun, step: StepBatch) -> torch.Tensor | None:
        """True where a row sees a token; None where every row sees all that the run attends to.

        [new_tokens, attended_tokens] for sequences of one shape, [sequences, 1, 1, attended_tokens]
        for single tokens that follow different contexts.
        """
        if run not in self._made:
            self._made[run] = _visible(run, step)
        return self._made[run]

    def hidden(self, run: SequenceRun, step: StepBatch) -> torch.Tensor | None:
        """True where a row must not see a token: the opposite of `visible`, in the same shape."""
        if run not in self._inverted:
            visible = self.visible(run, step)
            self._inverted[run] = None if visible is None else ~visible
        return self._inverted[run]


def _visible(run: SequenceRun, step: StepBatch) -> torch.Tensor | None:
    device = step.ids.device
    if not run.same_context:
        lengths = step.context_lens.narrow(0, run.first_sequence, run.num_sequences)
        seen = torch.arange(run.attended_tokens, device=device) < lengths.unsqueeze(1)
        return seen.view(run.num_sequences, 1, 1, run.attended_tokens)
    if run.new_tokens == 1:
        return None
    seen = torch.ones(run.new_tokens, run.attended_tokens, dtype=torch.bool, device=device)
    return seen.tril_(run.cached_tokens)
