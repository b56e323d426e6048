"""A judged run with fixed numbers, written by hand: renderers are tested apart from the analysis.

The figures hang together (parts sum to the step, losses are time minus roof), as a real run's do.
"""

from dataclasses import dataclass

from llmprof.schema.ceilings import BandwidthCeiling, ComputeCeiling, MemoryOp
from llmprof.schema.cost import ByteTraffic, OpGroup, Phase
from llmprof.schema.ledger import (
    GroupEntry,
    HiddenTerm,
    Ledger,
    Part,
    PartTime,
    Sensitivity,
    Side,
)
from llmprof.schema.measurement import Caveat, Estimate, LatencyMeasurement, PhaseMeasurement
from llmprof.schema.report import Report, Roof, RooflinePoint
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Evidence, Limit, LimitShare, Saturation, Verdict
from tests.records import PhasePlan, a_run_record, model_phase, stated_cost

READ_BYTES_PER_S = 28e9
MATMUL_FLOPS_PER_S = 1.2e12
ALPHA_S = 2e-6

CAVEATS = (
    Caveat(
        code="no-counters",
        message="this machine offers no hardware counters: bytes are counted, not measured",
        remedy="compare with a machine that has them",
    ),
    Caveat(
        code="dequantized",
        message="the file stores q4_1; the engine computed in bf16",
        remedy="read decode as a bf16 model's",
    ),
    Caveat(
        code="contended",
        message="2 of 8 rounds waited for a processor and were rejected",
        remedy="stop other programs, or raise measure.rounds",
        phase=Phase.PREFILL,
    ),
)


def about(
    point: float, *, spread: float = 0.03, samples: int = 8, confidence: float = 0.95
) -> Estimate:
    low, high = sorted((point * (1 - spread), point * (1 + spread)))
    return Estimate(point=point, low=low, high=high, confidence=confidence, num_samples=samples)


@dataclass(frozen=True, slots=True)
class Row:
    """One op group: milliseconds in the step and the work in it."""

    group: OpGroup
    time_ms: float
    calls: int
    gflop: float = 0.0
    weights_mb: float = 0.0
    kv_mb: float = 0.0
    activations_mb: float = 0.1

    @property
    def in_cache(self) -> bool:
        """No matrix product, and nothing of weight to read."""
        return not self.gflop and self.weights_mb < 1


PREFILL = (
    Row(OpGroup.EMBEDDING, 0.25, 1, weights_mb=0.6),
    Row(OpGroup.NORM, 9.0, 61),
    Row(OpGroup.QKV_PROJECTION, 18.0, 30, gflop=16.99, weights_mb=33.2),
    Row(OpGroup.ROPE, 7.0, 30),
    Row(OpGroup.KV_APPEND, 2.0, 30, kv_mb=11.8),
    Row(OpGroup.ATTENTION, 34.0, 30, gflop=9.08),
    Row(OpGroup.OUTPUT_PROJECTION, 11.0, 30, gflop=10.19, weights_mb=19.9),
    Row(OpGroup.GATE_UP_PROJECTION, 52.0, 30, gflop=54.36, weights_mb=106.2),
    Row(OpGroup.ACTIVATION, 12.0, 30),
    Row(OpGroup.DOWN_PROJECTION, 28.0, 30, gflop=27.18, weights_mb=53.1),
    Row(OpGroup.LM_HEAD, 2.4, 1, gflop=0.057, weights_mb=56.6),
    Row(OpGroup.SAMPLING, 0.15, 1),
)
DECODE = (
    Row(OpGroup.EMBEDDING, 0.01, 1),
    Row(OpGroup.NORM, 0.42, 61),
    Row(OpGroup.QKV_PROJECTION, 1.60, 30, gflop=0.0332, weights_mb=33.2),
    Row(OpGroup.ROPE, 0.30, 30),
    Row(OpGroup.KV_APPEND, 0.10, 30, kv_mb=0.023),
    Row(OpGroup.ATTENTION, 1.10, 30, gflop=0.0365, kv_mb=12.2),
    Row(OpGroup.OUTPUT_PROJECTION, 0.98, 30, gflop=0.0199, weights_mb=19.9),
    Row(OpGroup.GATE_UP_PROJECTION, 4.70, 30, gflop=0.1062, weights_mb=106.2),
    Row(OpGroup.ACTIVATION, 0.16, 30),
    Row(OpGroup.DOWN_PROJECTION, 2.40, 30, gflop=0.0531, weights_mb=53.1),
    Row(OpGroup.LM_HEAD, 2.30, 1, gflop=0.0566, weights_mb=56.6),
    Row(OpGroup.SAMPLING, 0.02, 1),
)
ROWS = {Phase.PREFILL: PREFILL, Phase.DECODE: DECODE}
HOST_MS = {Phase.PREFILL: 2.2, Phase.DECODE: 1.51}


def group_entry(row: Row) -> GroupEntry:
    memory_s = 1e6 * (row.weights_mb + row.kv_mb) / READ_BYTES_PER_S
    compute_s = 1e9 * row.gflop / MATMUL_FLOPS_PER_S
    roof_s = ALPHA_S * row.calls + max(memory_s, compute_s)
    return GroupEntry(
        group=row.group,
        ops=row.calls,
        time_s=about(row.time_ms * 1e-3),
        memory_s=memory_s,
        compute_s=compute_s,
        fixed_cost_s=ALPHA_S * row.calls,
        roof_s=roof_s,
        loss_s=about(row.time_ms * 1e-3 - roof_s, spread=0.1),
        side=None if row.in_cache else Side.COMPUTE if compute_s > memory_s else Side.MEMORY,
        flops=1e9 * row.gflop,
        traffic=ByteTraffic(
            weights=1e6 * row.weights_mb,
            kv_read=1e6 * row.kv_mb,
            activations=1e6 * row.activations_mb,
        ),
        roof_bytes=1e6 * (row.weights_mb + row.kv_mb),
    )


def a_ledger(phase: Phase) -> Ledger:
    groups = tuple(group_entry(row) for row in ROWS[phase])
    memory = [entry for entry in groups if entry.side is not Side.COMPUTE]
    times = {
        Part.MEMORY_WEIGHTS: sum(e.traffic.weights for e in memory) / READ_BYTES_PER_S,
        Part.MEMORY_KV: sum(e.traffic.kv_read for e in memory) / READ_BYTES_PER_S,
        Part.COMPUTE: sum(e.compute_s for e in groups if e.side is Side.COMPUTE),
        Part.FIXED_COST: sum(e.fixed_cost_s for e in groups),
        Part.LOSS: sum(e.loss_s.point for e in groups),
        Part.HOST: HOST_MS[phase] * 1e-3,
    }
    step_s = sum(times.values())
    return Ledger(
        phase=phase,
        step_s=about(step_s),
        grouped_scale=0.98,
        parts=tuple(
            PartTime(part=part, time_s=about(time), share=time / step_s)
            for part, time in times.items()
        ),
        groups=groups,
        hidden=(
            HiddenTerm(
                name="compute",
                time_s=sum(e.compute_s for e in memory),
                under="memory",
            ),
        ),
        sensitivities=(
            Sensitivity(of="weight bytes", seconds_per_percent=times[Part.MEMORY_WEIGHTS] / 100),
            Sensitivity(of="host", seconds_per_percent=times[Part.HOST] / 100),
        ),
    )


def a_point(
    phase: Phase, label: str, groups: tuple[OpGroup, ...], fraction: float
) -> RooflinePoint:
    entries = [e for e in map(group_entry, ROWS[phase]) if e.group in groups]
    time_s = sum(e.time_s.point for e in entries)
    flops = sum(e.flops for e in entries)
    required = sum(e.traffic.required for e in entries) or 1e6
    loaded = required + 40 * sum(e.traffic.activations for e in entries)
    return RooflinePoint(
        label=label,
        phase=phase,
        dtype="bf16",
        flops=flops,
        bytes_required=required,
        bytes_with_activations=loaded,
        intensity_flops_per_byte=flops / required,
        intensity_low_flops_per_byte=flops / loaded,
        achieved_flops_per_s=about(flops / time_s),
        achieved_bytes_per_s=about(required / time_s),
        attainable_flops_per_s=flops / time_s / fraction,
        roof_fraction=about(fraction),
        time_share=time_s / sum(1e-3 * row.time_ms for row in ROWS[phase]),
        mfu=None,
        mbu=None,
    )


PROJECTIONS = (
    OpGroup.QKV_PROJECTION,
    OpGroup.OUTPUT_PROJECTION,
    OpGroup.GATE_UP_PROJECTION,
    OpGroup.DOWN_PROJECTION,
    OpGroup.LM_HEAD,
)


def a_phase(phase: Phase, *, batch: int = 1) -> PhaseMeasurement:
    step_s = 1e-3 * (sum(row.time_ms for row in ROWS[phase]) + HOST_MS[phase])
    new_tokens = 512 if phase is Phase.PREFILL else 1
    return PhaseMeasurement(
        phase=phase,
        num_steps=8 if phase is Phase.PREFILL else 248,
        num_rounds=8,
        num_rejected_rounds=2 if phase is Phase.PREFILL else 0,
        num_sequences=batch,
        context_tokens=512 if phase is Phase.PREFILL else 529,
        step_s=about(step_s),
        step_spread=0.021,
        new_tokens_per_s=about(batch * new_tokens / step_s),
        new_tokens_per_s_per_sequence=about(new_tokens / step_s),
    )


def a_verdict(phase: Phase) -> Verdict:
    if phase is Phase.PREFILL:
        return Verdict(
            phase=phase,
            limit=Limit.COMPUTE,
            limits=(
                LimitShare(limit=Limit.COMPUTE, share=about(0.81)),
                LimitShare(limit=Limit.ELEMENTWISE, share=about(0.17)),
            ),
            parts_named=(Part.COMPUTE, Part.LOSS),
            saturation=Saturation.UNSATURATED,
            saturation_fraction=about(0.68),
            roof_fraction=about(0.57),
            sentence=(
                "prefill is on the compute side: 81 % of the step multiplies matrices at "
                "816 GFLOP/s, 68 % of the 1.20 TFLOP/s bf16 matmul ceiling: unsaturated"
            ),
            evidence=(
                Evidence(
                    statement="share of the compute side",
                    observed=0.81,
                    threshold=0.6,
                    supports=True,
                ),
            ),
        )
    return Verdict(
        phase=phase,
        limit=Limit.MEMORY,
        limits=(
            LimitShare(limit=Limit.MEMORY, share=about(0.84)),
            LimitShare(limit=Limit.HOST, share=about(0.097)),
            LimitShare(limit=Limit.ELEMENTWISE, share=about(0.065)),
        ),
        parts_named=(Part.MEMORY_WEIGHTS, Part.LOSS),
        saturation=Saturation.UNSATURATED,
        saturation_fraction=about(0.76),
        roof_fraction=about(0.66),
        sentence=(
            "decode is on the memory side: 84 % of the step reads weights and KV cache at "
            "21.3 GB/s, 76 % of the 28.0 GB/s read ceiling (skinny matmul kernel alone: 77 %): "
            "unsaturated"
        ),
        evidence=(
            Evidence(
                statement="share of the memory side", observed=0.84, threshold=0.6, supports=True
            ),
            Evidence(
                statement="saturation of the read ceiling",
                observed=0.76,
                threshold=0.8,
                supports=False,
            ),
        ),
    )


def a_roof() -> Roof:
    return Roof(
        read_bytes_per_s=about(READ_BYTES_PER_S, spread=0.05),
        read_level="DRAM",
        read_kernel="numba.read8",
        matmul_flops_per_s=about(MATMUL_FLOPS_PER_S),
        matmul_dtype="bf16",
        ridge_flops_per_byte=MATMUL_FLOPS_PER_S / READ_BYTES_PER_S,
        skinny_bytes_per_s=about(0.77 * READ_BYTES_PER_S),
        skinny_rows=1,
        skinny_kernel="torch.nn.functional.linear",
        alpha_s=ALPHA_S,
    )


def a_record(rounds: int = 8) -> RunRecord:
    plans = (model_phase(Phase.PREFILL), model_phase(Phase.DECODE))
    record = a_run_record(plans, rounds=rounds, random_weights=True)
    cached = record.ceilings.model_copy(
        update={
            "bandwidth": (
                BandwidthCeiling(
                    op=MemoryOp.TRIAD,
                    level="DRAM",
                    buffer_bytes=2**28,
                    bytes_per_s=24e9,
                    median_bytes_per_s=23.1e9,
                    spread=0.04,
                    kernel="numba.triad",
                ),
            ),
            "compute": (
                ComputeCeiling(
                    dtype="fp32",
                    m=2048,
                    n=2048,
                    k=2048,
                    flops_per_s=0.21e12,
                    median_flops_per_s=0.2e12,
                    spread=0.02,
                    kernel="torch.matmul",
                ),
            ),
        }
    )
    return record.model_copy(update={"ceilings": cached})


def a_report(*, rounds: int = 8, batch: int = 1) -> Report:
    phases = (Phase.PREFILL, Phase.DECODE)
    plans: tuple[PhasePlan, ...] = tuple(model_phase(phase) for phase in phases)
    every = tuple(OpGroup)
    return Report(
        run=a_record(rounds),
        roof=a_roof(),
        phases=tuple(a_phase(phase, batch=batch) for phase in phases),
        latency=LatencyMeasurement(ttft_s=about(0.178), tpot_s=about(0.01561), itl_s=about(0.0156)),
        costs=tuple(stated_cost(plan) for plan in plans),
        points=(
            a_point(Phase.PREFILL, "prefill", every, 0.57),
            a_point(Phase.DECODE, "decode", every, 0.66),
            a_point(Phase.DECODE, "decode projections", PROJECTIONS, 0.8),
            a_point(Phase.DECODE, "decode attention", (OpGroup.ATTENTION,), 0.45),
        ),
        ledgers=tuple(a_ledger(phase) for phase in phases),
        verdicts=tuple(a_verdict(phase) for phase in phases),
        caveats=CAVEATS,
        headline=(
            "Decode reads every weight for each token and keeps arithmetic 1.6 % busy; prefill "
            "handles 45 x more tokens per second with the same weights."
        ),
    )
