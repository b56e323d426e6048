"""Rows of recorded decode steps: a step takes the next larger recording, and pads what is missing."""

from collections.abc import Sequence

from llmprof.schema.cost import OpCost, StepCost
from llmprof.schema.settings import BatchingPolicy, ExecutionMode, RunConfig, WorkloadKind


def row_buckets(most: int) -> tuple[int, ...]:
    """1, 2, 4, 8, ... below `most`, and `most` itself: a full batch is never padded."""
    return (*(1 << n for n in range((most - 1).bit_length())), most)


def buckets_of(config: RunConfig, device: str | None = None) -> tuple[int, ...]:
    """Rows that the decode steps of a run are padded to; empty where they run as they are.

    CUDA graphs of batches that grow and shrink are padded, and so are steps that torch.compile made.
    One batch of fixed work has a graph for its own rows.

    `device`: as it was resolved; None for what `config` says, where `auto` counts as no GPU.
    """
    steady = (
        config.workload.kind is WorkloadKind.FIXED
        and config.batching.policy is BatchingPolicy.STATIC
    )
    if steady or not _has_a_shape(config.execution.mode, device or config.device):
        return ()
    return row_buckets(config.batching.max_sequences)


def _has_a_shape(mode: ExecutionMode, device: str) -> bool:
    """Whether decode steps are started as something that is made once for each number of rows, at a cost."""
    compiled = mode is ExecutionMode.COMPILED and device.startswith("cuda")
    return compiled or mode is ExecutionMode.CUDA_GRAPH


def padded_rows(rows: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds so many rows; `rows` itself where none does."""
    return min((bucket for bucket in buckets if bucket >= rows), default=rows)


def with_padding(cost: StepCost, buckets: Sequence[int]) -> StepCost:
    """A decode step with what the rows beyond its own move, as traffic of a kind of its own.

    They pass every op like the others, but read and write one token in a block that nobody uses.
    Steps with prompts in them are never padded, and FLOPs stay those that the model needs.
    """
    decodes = all(one.new_tokens == 1 and one.cached_tokens for one in cost.shape.sequences)
    rows = cost.shape.new_tokens
    extra = padded_rows(rows, buckets) - rows if decodes else 0
    if not extra:
        return cost
    return cost.model_copy(update={"ops": tuple(_padded(op, extra / rows) for op in cost.ops)})


def _padded(op: OpCost, share: float) -> OpCost:
    padding = share * (op.traffic.activations + op.traffic.logits)
    return op.model_copy(update={"traffic": op.traffic.model_copy(update={"padding": padding})})
