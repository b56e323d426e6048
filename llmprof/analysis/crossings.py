"""Sizes at which a limit changes sides: computed from the model's costs and the run's ceilings."""

from collections.abc import Callable
from typing import Final

from llmprof import units
from llmprof.analysis.op_roof import op_roof
from llmprof.analysis.prediction import BaseRun
from llmprof.analysis.prediction_target import (
    MOST_SEQUENCES,
    Target,
    available_of_run,
    largest_batch,
)
from llmprof.analysis.rates import Rates
from llmprof.costs.step import step_cost
from llmprof.schema.cost import PROJECTIONS, Phase, SequenceShape, StepShape
from llmprof.schema.ledger import Side
from llmprof.schema.levers import Crossing
from llmprof.schema.settings import KvLayout

_MOST_BATCH: Final = 65_536
_MOST_CONTEXT: Final = 10**9


def find_crossings(base: BaseRun) -> tuple[Crossing, ...]:
    """In the order of a reader's questions: prompt, batch, memory, context."""
    one = next(iter(base.cases.values()))
    rates, cache_bytes = one.rates, one.work.cache_bytes
    found = [_prompt(base.target, rates, cache_bytes)]
    if base.target.settings.kv_cache.layout is not KvLayout.NONE:
        found.append(_decode_batch(base.target, rates, cache_bytes))
        found.append(_full_memory(base))
        found.append(context_crossing(base.target))
    return tuple(found)


def _prompt(target: Target, rates: Rates, cache_bytes: int | None) -> Crossing:
    longest = target.model.max_position_embeddings
    batch = target.settings.workload.batch

    def computes(tokens: int) -> bool:
        shape = _shape(Phase.PREFILL, batch, tokens, 0)
        return _products_compute(target, shape, rates, cache_bytes)

    value = first_size(computes, longest)
    sentence = (
        f"prefill turns compute-bound at {units.count(value)} prompt tokens"
        if value is not None
        else f"prefill stays memory-bound up to the model's {units.count(longest)} positions"
    )
    return Crossing(name="prompt_tokens_compute_bound", value=value, sentence=sentence)


def _decode_batch(target: Target, rates: Rates, cache_bytes: int | None) -> Crossing:
    """Of the products with weights: attention reads a cache of its own for each sequence."""
    context = target.settings.workload.prompt_tokens

    def computes(batch: int) -> bool:
        shape = _shape(Phase.DECODE, batch, 1, context)
        return _products_compute(target, shape, rates, cache_bytes)

    value = first_size(computes, _MOST_BATCH)
    sentence = (
        f"decode's products with weights turn compute-bound at batch {units.count(value)}"
        if value is not None
        else "decode's products with weights stay memory-bound at every batch"
    )
    return Crossing(name="batch_compute_bound", value=value, sentence=sentence)


def _full_memory(base: BaseRun) -> Crossing:
    available = available_of_run(base.record)
    value = largest_batch(base.target, available)
    workload = base.target.settings.workload
    tokens = workload.prompt_tokens + workload.output_tokens
    more = "more than " if value == MOST_SEQUENCES else ""
    return Crossing(
        name="batch_memory_full",
        value=value,
        sentence=f"memory ({units.byte_count(max(available, 0))}) holds {more}{units.count(value)} "
        f"sequences of {units.count(tokens)} tokens",
    )


def context_crossing(target: Target) -> Crossing:
    """From where a decode step reads more KV cache than weights.

    By the traffic of a decode step: layers with a window read no more than their window.
    """
    batch, longest = target.settings.workload.batch, target.model.max_position_embeddings

    def outweighs(context: int) -> bool:
        shape = _shape(Phase.DECODE, batch, 1, context)
        traffic = step_cost(target.model, target.weights, shape, target.options).traffic
        return traffic.kv_read > traffic.weights

    value = first_size(outweighs, _MOST_CONTEXT)
    each = "" if batch == 1 else f" in each of {batch} sequences"
    if value is None:
        told = f"a decode step reads more weights than KV cache at every context{each}"
    else:
        beyond = (
            "" if value <= longest else f", beyond the model's {units.count(longest)} positions"
        )
        told = (
            f"a decode step reads more KV cache than weights from {units.count(value)} tokens of "
            f"context{each}{beyond}"
        )
    return Crossing(name="context_kv_exceeds_weights", value=value, sentence=told)


def first_size(holds: Callable[[int], bool], most: int) -> int | None:
    """The smallest size from 1 to `most` at which `holds`, which stays true from there on."""
    if not holds(most):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _products_compute(
    target: Target, shape: StepShape, rates: Rates, cache_bytes: int | None
) -> bool:
    """Whether more of the projections' roof time is arithmetic than memory."""
    cost = step_cost(target.model, target.weights, shape, target.options)
    roofs = [op_roof(op, rates, cache_bytes) for op in cost.of_groups(*PROJECTIONS).ops]
    compute_s = sum(roof.link_s for roof in roofs if roof.side is Side.COMPUTE)
    return compute_s > sum(roof.link_s for roof in roofs if roof.side is Side.MEMORY)


def _shape(phase: Phase, batch: int, new_tokens: int, cached_tokens: int) -> StepShape:
    sequence = SequenceShape(count=batch, new_tokens=new_tokens, cached_tokens=cached_tokens)
    return StepShape(phase=phase, sequences=(sequence,), logit_rows=batch)
