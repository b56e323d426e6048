"""A decode step of the engine as a CUDA graph: one launch for all kernels."""

import dataclasses
from dataclasses import dataclass
from typing import Final

import torch

from llmprof.engine.execution.decode_inputs import DecodeInputs
from llmprof.engine.kv_cache import KvCache, KvPool
from llmprof.engine.model import Decoder
from llmprof.engine.probe import NullProbe, Probe
from llmprof.engine.step_batch import SequenceRun, StepBatch
from llmprof.schema.cost import OpGroup

CONTEXT_STEP: Final = 256
"""A graph attends to a fixed number of tokens, of which a mask hides those that are not there yet:
the context rounded up to a multiple of this, so it reads at most 255 tokens too many."""


@dataclass(frozen=True, slots=True)
class GraphStep:
    """See `replay_runner.RecordedStep`."""

    inputs: DecodeInputs
    graph: torch.cuda.CUDAGraph
    logits: torch.Tensor

    def replay(self, probe: Probe) -> torch.Tensor:
        probe.group_begin(OpGroup.OTHER)
        self.graph.replay()
        probe.group_end()
        return self.logits


def context_bucket(step: StepBatch) -> int:
    """Tokens that the graph for a step attends to."""
    (run,) = step.runs
    return -(-run.attended_tokens // CONTEXT_STEP) * CONTEXT_STEP


def record_graph(decoder: Decoder, cache: KvCache, inputs: DecodeInputs) -> GraphStep:
    """Run a step once, for what libraries set up on their first call, and capture it.

    Both write the keys and values that the replay will write again.
    """
    x = inputs.x.clone()
    fixed = dataclasses.replace(inputs.step, runs=_whole_bucket(inputs.step, cache))
    beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        _forward(decoder, cache, inputs, fixed)
    torch.cuda.current_stream().wait_stream(beside)
    inputs.x.copy_(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = _forward(decoder, cache, inputs, fixed)
    return GraphStep(inputs, graph, logits)


def _forward(
    decoder: Decoder, cache: KvCache, inputs: DecodeInputs, step: StepBatch
) -> torch.Tensor:
    """With what cache and attention compute once per step, since the graph must do it again too."""
    cache.begin_step(step)
    decoder.attention.begin_step(step)
    return decoder.through_layers(inputs.x, inputs.turn, step, cache, NullProbe())


def _whole_bucket(step: StepBatch, cache: KvCache) -> tuple[SequenceRun]:
    """All tokens of the bucket, or of the cache: a mask made from the context lengths hides the rest."""
    assert isinstance(cache, KvPool), "without a cache no step has the shape of another"
    room = step.block_tables.shape[1] * cache.block_tokens
    attended = min(context_bucket(step), room)
    (run,) = step.runs
    return (dataclasses.replace(run, cached_tokens=attended - 1, same_context=False),)
