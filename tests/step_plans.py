"""The truth about the steps of a phase, from which `tests.records` writes synthetic run records."""

from dataclasses import dataclass, field

from llmprof.schema.cost import (
    ByteTraffic,
    OpCost,
    OpGroup,
    Phase,
    SequenceShape,
    StepCost,
    StepShape,
)

READ_BYTES_PER_S = 30e9
MATMUL_FLOPS_PER_S = 1.2e12
ALPHA_S = 2e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPlan:
    """One kind of op: its work and the time that it truly takes in a step, all calls together."""

    group: OpGroup
    time_s: float
    calls: int = 30
    flops: float = 0.0
    traffic: ByteTraffic = field(default_factory=ByteTraffic)
    dtype: str = "bf16"
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """The truth about the steps of one phase."""

    phase: Phase
    ops: tuple[OpPlan, ...]
    host_s: float = 0.0
    """Time of a step outside every op, in the clean and in the grouped pass alike. Beside a device
    clock: the host's time to enqueue the step."""
    batch: int = 1
    new_tokens: int = 1
    cached_tokens: int = 512
    steps: int = 8
    grouped_slowdown: float = 1.0
    """Ops run so much slower in the grouped pass (instruments that disturb)."""
    device_s: float | None = None
    """Device clock of a step, where there is one."""

    @property
    def step_s(self) -> float:
        return sum(op.time_s for op in self.ops) + self.host_s


def _linear(
    group: OpGroup, shape: tuple[int, int], rows: int, efficiency: float, calls: int = 30
) -> OpPlan:
    flops = 2.0 * shape[0] * shape[1] * rows * calls
    weights = 2.0 * shape[0] * shape[1] * calls
    link_s = max(weights / READ_BYTES_PER_S, flops / MATMUL_FLOPS_PER_S)
    activations = 2.0 * (shape[0] + shape[1]) * rows * calls
    return OpPlan(
        group=group,
        calls=calls,
        flops=flops,
        traffic=ByteTraffic(weights=weights, activations=activations),
        time_s=ALPHA_S * calls + link_s / efficiency,
    )


def _small(group: OpGroup, rows: int, calls: int = 30) -> OpPlan:
    return OpPlan(
        group=group,
        calls=calls,
        time_s=calls * (3e-6 + rows * 0.2e-6),
        traffic=ByteTraffic(activations=4.0 * 576 * rows * calls),
    )


def _attention(new: int, cached: int, batch: int, efficiency: float) -> OpPlan:
    pairs = new * cached + new * (new + 1) / 2
    flops = 4.0 * 9 * 64 * pairs * batch * 30
    kv_bytes = 23_040.0 * cached * batch
    link_s = max(kv_bytes / READ_BYTES_PER_S, flops / MATMUL_FLOPS_PER_S)
    return OpPlan(
        group=OpGroup.ATTENTION,
        flops=flops,
        traffic=ByteTraffic(kv_read=kv_bytes, activations=4.0 * 576 * new * batch * 30),
        time_s=30 * ALPHA_S + link_s / efficiency,
    )


def model_phase(
    phase: Phase,
    *,
    batch: int = 1,
    prompt_tokens: int = 512,
    efficiency: float = 0.9,
    host_s: float = 0.3e-3,
    steps: int = 8,
) -> PhasePlan:
    """Prefill or decode of SmolLM2-135M in bf16 whose matmuls reach `efficiency` of their roof."""
    decode = phase == Phase.DECODE
    new, cached = (1, prompt_tokens) if decode else (prompt_tokens, 0)
    rows = new * batch
    ops = (
        _small(OpGroup.EMBEDDING, rows, calls=1),
        _small(OpGroup.NORM, rows, calls=61),
        _linear(OpGroup.QKV_PROJECTION, (960, 576), rows, efficiency),
        _small(OpGroup.ROPE, rows),
        OpPlan(
            group=OpGroup.KV_APPEND,
            traffic=ByteTraffic(kv_write=23_040.0 * rows),
            time_s=30 * 3e-6 + 23_040.0 * rows / READ_BYTES_PER_S,
        ),
        _attention(new, cached, batch, efficiency * 0.6),
        _linear(OpGroup.OUTPUT_PROJECTION, (576, 576), rows, efficiency),
        _linear(OpGroup.GATE_UP_PROJECTION, (3072, 576), rows, efficiency),
        _small(OpGroup.ACTIVATION, rows),
        _linear(OpGroup.DOWN_PROJECTION, (576, 1536), rows, efficiency),
        _linear(OpGroup.LM_HEAD, (49152, 576), batch, efficiency, calls=1),
        _small(OpGroup.SAMPLING, batch, calls=1),
    )
    return PhasePlan(
        phase=phase,
        ops=ops,
        host_s=host_s,
        batch=batch,
        new_tokens=new,
        cached_tokens=cached,
        steps=steps if decode else 1,
    )


def step_shape(plan: PhasePlan, index: int = 0) -> StepShape:
    """A decode's context grows: in the cache, or in what is computed again without one."""
    grown = index if plan.phase == Phase.DECODE else 0
    cached = plan.phase == Phase.PREFILL or plan.cached_tokens > 0
    return StepShape(
        phase=plan.phase,
        sequences=(
            SequenceShape(
                count=plan.batch,
                new_tokens=plan.new_tokens + (0 if cached else grown),
                cached_tokens=plan.cached_tokens + (grown if cached else 0),
            ),
        ),
        logit_rows=plan.batch,
    )


def stated_cost(plan: PhasePlan) -> StepCost:
    return StepCost(
        shape=step_shape(plan),
        ops=tuple(
            OpCost(
                name=op.name or op.group.value,
                group=op.group,
                calls=op.calls,
                compute_dtype=op.dtype,
                flops=op.flops,
                flops_dense=op.flops,
                flops_causal=op.flops,
                traffic=op.traffic,
            )
            for op in plan.ops
        ),
    )
