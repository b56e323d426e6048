"""A decode step of the engine as a CUDA graph: one launch for all kernels."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

import torch

from llmprof.engine.execution.decode_inputs import DecodeInputs
from llmprof.engine.kv_cache import KvCache, KvPool
from llmprof.engine.model import Decoder
from llmprof.engine.probe import NullProbe, Probe, wants_groups
from llmprof.engine.step_batch import SequenceRun, StepBatch
from llmprof.errors import CapabilityError

CONTEXT_STEP: Final = 256
"""A graph attends to a fixed number of tokens, of which a mask hides those that are not there yet:
the context rounded up to a multiple of this, so it reads at most 255 tokens too many."""


@dataclass(frozen=True, slots=True)
class GraphStep:
    """See `replay_runner.RecordedStep`."""

    inputs: DecodeInputs
    graph: torch.cuda.CUDAGraph
    logits: torch.Tensor
    decoder: Decoder
    cache: KvCache
    fixed: StepBatch
    """The step as it was captured."""

    def replay(self, probe: Probe) -> torch.Tensor:
        """Where somebody looks between groups, the kernels of the graph one by one.

        Inside of a graph there is no between; a device that is held back until they are enqueued
        runs them back to back too.
        """
        _plan_attention(self.decoder, self.cache, self.inputs.step)
        if wants_groups(probe):
            return _forward(self.decoder, self.cache, self.inputs, self.fixed, probe)
        self.graph.replay()
        return self.logits


def context_bucket(step: StepBatch) -> int:
    """Tokens that the graph for a step attends to."""
    (run,) = step.runs
    return -(-run.attended_tokens // CONTEXT_STEP) * CONTEXT_STEP


class GraphRecorder:
    """Captures steps into one pool of memory, since no two graphs run at the same time.

    What one needs between its kernels may lie where another one has its own; logits are valid until
    the next step.
    """

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, decoder: Decoder, cache: KvCache, inputs: DecodeInputs) -> GraphStep:
        """Run a step once, for what libraries set up on their first call, and capture it.

        Both write the keys and values that the replay will write again.

        Raises:
            CapabilityError: the step does something that a graph cannot hold.
        """
        x = inputs.x.clone()
        _plan_attention(decoder, cache, inputs.step)
        fixed = dataclasses.replace(inputs.step, runs=whole_bucket(inputs.step, cache))
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            _forward(decoder, cache, inputs, fixed, NullProbe())
        torch.cuda.current_stream().wait_stream(beside)
        inputs.x.copy_(x)
        graph, logits = self._capture(decoder, cache, inputs, fixed)
        return GraphStep(inputs, graph, logits, decoder, cache, fixed)

    def _capture(
        self, decoder: Decoder, cache: KvCache, inputs: DecodeInputs, fixed: StepBatch
    ) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                logits = _forward(decoder, cache, inputs, fixed, NullProbe())
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise CapabilityError(
                f"execution.mode=cuda_graph: the decode step cannot be captured ({reason})",
                remedy="Set execution.mode=eager",
            ) from error
        return graph, logits


def _forward(
    decoder: Decoder, cache: KvCache, inputs: DecodeInputs, step: StepBatch, probe: Probe
) -> torch.Tensor:
    """With what cache and attention compute once per step, since the graph must do it again too."""
    cache.begin_step(step)
    decoder.attention.begin_step(step)
    return decoder.through_layers(inputs.x, inputs.turn, step, cache, probe)


def _plan_attention(decoder: Decoder, cache: KvCache, step: StepBatch) -> None:
    """What attention does on the host, and a graph therefore does not do again."""
    assert isinstance(cache, KvPool), "without a cache no step has the shape of another"
    decoder.attention.before_replay(step, cache.block_tokens)


def whole_bucket(step: StepBatch, cache: KvCache) -> tuple[SequenceRun]:
    """All rows, and all tokens of the bucket or of the cache.

    A mask made from the context lengths hides what is not there.
    """
    assert isinstance(cache, KvPool), "without a cache no step has the shape of another"
    room = step.block_tables.shape[1] * cache.block_tokens
    attended = min(context_bucket(step), room)
    (run,) = step.runs
    return (
        dataclasses.replace(
            run,
            num_sequences=step.num_sequences,
            cached_tokens=attended - 1,
            same_context=False,
        ),
    )
