"""A workload made of planted pieces: every step runs all of them, and states what they cost."""

import statistics
import time
from collections.abc import Sequence

import torch

from llmprof.engine.probe import Probe
from llmprof.engine.workload import CeilingNeeds, RoundDetails
from llmprof.schema.cost import Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import EngineDescription
from tests.zoo.pieces import Piece

SHAPE = StepShape(
    phase=Phase.DECODE,
    sequences=(SequenceShape(new_tokens=1, cached_tokens=0),),
    logit_rows=1,
)


class PlantedWorkload:
    """Rounds of equal steps; see `engine.workload.Workload`."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        *,
        device: str,
        threads: int,
        working_set_bytes: int,
        compute_dtype: str = "bf16",
        steps: int = 6,
        threads_inside: int | None = None,
    ) -> None:
        """`threads_inside`: torch's threads during a round, where the pieces use fewer than the run."""
        self.model: ModelConfig | None = None
        self.weights: WeightManifest | None = None
        costs = tuple(piece.cost for piece in pieces if piece.cost is not None)
        self.stated_costs: tuple[StepCost, ...] = (StepCost(shape=SHAPE, ops=costs),)
        self.needs = CeilingNeeds(
            working_set_bytes=working_set_bytes,
            compute_dtype=compute_dtype,
            skinny_rows=None,
            skinny_shapes=(),
        )
        self._pieces = tuple(pieces)
        self._device = device
        self._threads = threads
        self._inside = threads_inside
        self._steps = steps

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (SHAPE.phase,)

    def lead_in(self) -> None:
        """None: its pieces are planted to take the time they take."""

    def run_round(self, probe: Probe) -> str | None:
        if self._inside is not None:
            torch.set_num_threads(self._inside)
        try:
            with torch.inference_mode():
                for _ in range(self._steps):
                    self._run_step(probe)
        finally:
            if self._inside is not None:
                torch.set_num_threads(self._threads)
        return None

    def round_details(self) -> RoundDetails:
        return RoundDetails()

    def describe(self) -> EngineDescription:
        return EngineDescription(
            name="planted bottleneck",
            kernels={piece.name: piece.name for piece in self._pieces},
            compute_dtype=self.needs.compute_dtype,
            kv_dtype=self.needs.compute_dtype,
            kv_bytes_reserved=0,
            kv_bytes_used=0,
            weight_bytes=self.needs.working_set_bytes,
            threads=self._threads,
            random_weights=False,
        )

    def pieces_s(self, repeats: int) -> dict[str, float]:
        """Median time of each piece by a clock around it alone, in turn as a step runs them.

        The truth about the shares of a mixture, measured without any part of the profiler.
        """
        times_s: dict[str, list[float]] = {piece.name: [] for piece in self._pieces}
        with torch.inference_mode():
            for _ in range(repeats):
                for piece in self._pieces:
                    begin_s = time.perf_counter()
                    piece.run()
                    if self._device != "cpu":
                        torch.cuda.synchronize(self._device)
                    times_s[piece.name].append(time.perf_counter() - begin_s)
        return {name: statistics.median(times) for name, times in times_s.items()}

    def _run_step(self, probe: Probe) -> None:
        probe.step_begin(SHAPE)
        for piece in self._pieces:
            if piece.cost is None:
                piece.run()
                continue
            probe.group_begin(piece.cost.group)
            piece.run()
            probe.group_end()
        probe.step_end()
