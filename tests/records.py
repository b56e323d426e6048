"""Synthetic run records with known answers, and the report made from one.

A `PhasePlan` says what is true (time of each op, host time, work); `a_run_record` gives the record
that a perfect profiler would have written about it.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from llmprof.schema.ceilings import CeilingReading, Ceilings, FixedCost, SkinnyReading
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.environment import CacheLevel, CpuInfo, Environment
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import Report
from llmprof.schema.run import (
    Contention,
    CountedOp,
    CountedStep,
    EngineDescription,
    GroupTime,
    OwnCost,
    Round,
    RunRecord,
    StepSample,
    Tool,
    Warmup,
)
from llmprof.schema.settings import RunConfig
from tests.smollm2 import a_manifest, a_model
from tests.step_plans import (
    ALPHA_S,
    MATMUL_FLOPS_PER_S,
    READ_BYTES_PER_S,
    OpPlan,
    PhasePlan,
    model_phase,
    stated_cost,
    step_shape,
)

__all__ = [
    "QUIET",
    "OpPlan",
    "PhasePlan",
    "a_manifest",
    "a_model",
    "a_reading",
    "a_report",
    "a_run_record",
    "an_environment",
    "model_phase",
    "stated_cost",
]

PROBE_CALL_S = 0.5e-6
"""What a pair of group hooks adds to a grouped step; the next line is its share in the group."""
PROBE_CALL_IN_GROUP_S = 0.2e-6
QUIET = Contention(
    run_queue_fraction=0.002,
    cpu_per_wall=0.99,
    steal_fraction=0.0,
    pressure_fraction=0.01,
    canary_hz=3.0e9,
    worst_thread_fraction=0.003,
)


def a_reading(
    time_s: float = 0.0,
    *,
    read_bytes_per_s: float = READ_BYTES_PER_S,
    matmul_flops_per_s: float = MATMUL_FLOPS_PER_S,
    skinny_bytes_per_s: float | None = 0.95 * READ_BYTES_PER_S,
) -> CeilingReading:
    skinny = None
    if skinny_bytes_per_s is not None:
        skinny = SkinnyReading(
            rows=1,
            dtype="bf16",
            kernel="torch.nn.functional.linear",
            bytes_per_s=skinny_bytes_per_s,
        )
    return CeilingReading(
        time_s=time_s,
        duration_s=0.06,
        read_bytes_per_s=read_bytes_per_s,
        read_buffer_bytes=512 * 2**20,
        read_level="DRAM",
        read_kernel="numba.read8",
        matmul_dtype="bf16",
        matmul_flops_per_s=matmul_flops_per_s,
        matmul_shape=(1024, 1024, 1024),
        skinny=skinny,
    )


def an_environment() -> Environment:
    return Environment(
        device="cpu",
        device_name="Example CPU 8000",
        cpu=CpuInfo(
            model="Example CPU 8000",
            logical_cores=2,
            usable_cores=2,
            caches=(
                CacheLevel(level=1, size_bytes=48 * 1024, shared_by=1),
                CacheLevel(level=2, size_bytes=2 * 2**20, shared_by=1),
                CacheLevel(level=3, size_bytes=32 * 2**20, shared_by=2),
            ),
            isa=("avx2", "avx512f", "avx512_bf16", "amx_bf16"),
            governor=None,
        ),
        gpu=None,
        memory_bytes=16 * 2**30,
        memory_available_bytes=12 * 2**30,
        virtualized=True,
        os="Linux 6.1",
        python="3.11.9",
        versions={"torch": "2.13.0+cpu", "numpy": "2.1.0", "llmprof": "0.1.0"},
        threads=2,
        fingerprint="0123456789abcdef",
    )


def _steps(
    plans: Sequence[PhasePlan], start_s: float, scales: Iterator[float], *, grouped: bool
) -> list[StepSample]:
    """Samples of one round, one phase after the other, each a scale times as long as the truth."""
    samples = []
    for plan in plans:
        for index in range(plan.steps):
            scale = next(scales)
            slow = scale * plan.grouped_slowdown if grouped else scale
            groups = _group_times(plan, slow) if grouped else ()
            duration_s = plan.host_s
            if plan.device_s is None:
                duration_s += sum(op.time_s for op in plan.ops) * slow + PROBE_CALL_S * len(groups)
            samples.append(
                StepSample(
                    shape=step_shape(plan, index),
                    start_s=start_s,
                    duration_s=duration_s,
                    device_s=plan.device_s if plan.device_s is None else plan.device_s * slow,
                    groups=groups,
                )
            )
            start_s += duration_s
    return samples


def _group_times(plan: PhasePlan, scale: float) -> tuple[GroupTime, ...]:
    probe_s = PROBE_CALL_IN_GROUP_S if plan.device_s is None else 0.0
    total: dict[OpGroup, float] = {}
    for op in plan.ops:
        total[op.group] = total.get(op.group, probe_s) + op.time_s * scale
    return tuple(GroupTime(group=group, duration_s=s, calls=1) for group, s in total.items())


def _counted(plans: Sequence[PhasePlan]) -> tuple[CountedStep, ...]:
    return tuple(
        CountedStep(
            shape=step_shape(plan),
            ops=tuple(
                CountedOp(
                    op="aten.linear" if op.flops else "aten.mul",
                    group=op.group,
                    calls=op.calls,
                    flops=int(op.flops) if op.flops else None,
                )
                for op in plan.ops
            ),
        )
        for plan in plans
    )


def a_run_record(
    phases: Sequence[PhasePlan] | None = None,
    *,
    rounds: int = 8,
    grouped_rounds: int | None = None,
    noise: float = 0.01,
    step_noise: float = 0.0,
    seed: int = 1,
    readings: bool = True,
    read_bytes_per_s: Sequence[float] | float = READ_BYTES_PER_S,
    matmul_flops_per_s: float = MATMUL_FLOPS_PER_S,
    skinny_bytes_per_s: float | None = 0.95 * READ_BYTES_PER_S,
    alpha_s: float = ALPHA_S,
    contention: Sequence[Contention] | Contention = QUIET,
    counted: bool = True,
    model: bool = True,
    random_weights: bool = False,
    status: str = "complete",
    settings: RunConfig | None = None,
    alpha_spread: float = 0.05,
    settled: bool | None = True,
    caveats: tuple[Caveat, ...] = (),
) -> RunRecord:
    """A run file of `rounds` clean and `grouped_rounds` (as many) grouped rounds of the phases.

    Step times of a round are the truth times exp(N(0, noise)), and each step of it times
    exp(N(0, step_noise)). `read_bytes_per_s` may be a list of
    rounds + 1 values: the readings between the rounds. `contention` may be one value per round.
    """
    plans = tuple(phases or (model_phase(Phase.PREFILL), model_phase(Phase.DECODE)))
    rng = np.random.default_rng(seed)
    read = (
        [read_bytes_per_s] * (rounds + 1)
        if isinstance(read_bytes_per_s, float)
        else list(read_bytes_per_s)
    )
    ceilings = [
        a_reading(
            float(index),
            read_bytes_per_s=value,
            matmul_flops_per_s=matmul_flops_per_s,
            skinny_bytes_per_s=skinny_bytes_per_s,
        )
        for index, value in enumerate(read)
    ]
    quiet = [contention] * rounds if isinstance(contention, Contention) else list(contention)

    def scales(of_round: float) -> Iterator[float]:
        while True:
            yield of_round * (float(np.exp(rng.normal(0.0, step_noise))) if step_noise else 1.0)

    def one_round(index: int, *, grouped: bool) -> Round:
        scale = float(np.exp(rng.normal(0.0, noise))) if noise else 1.0
        judged = readings and not grouped
        return Round(
            index=index,
            before=ceilings[index] if judged else None,
            after=ceilings[index + 1] if judged else None,
            steps=tuple(_steps(plans, float(index), scales(scale), grouped=grouped)),
            contention=QUIET if grouped else quiet[index],
        )

    first = plans[0]
    prompt = first.new_tokens if first.phase == Phase.PREFILL else first.cached_tokens or 1
    return RunRecord(
        id="20261129T154500Z-smollm2-135m-b1-p512-1a2b3c4d",
        created=datetime(2026, 11, 29, 15, 45, tzinfo=UTC),
        status="partial" if status == "partial" else "complete",
        status_reason="interrupted in round 3" if status == "partial" else None,
        tool=Tool(version="0.1.0", argv=("llmprof", "run", "smollm2-135m-instruct")),
        settings=settings
        or RunConfig.model_validate(
            {
                "model": "smollm2-135m-instruct",
                "workload": {
                    "batch": first.batch,
                    "prompt_tokens": prompt,
                    "output_tokens": plans[-1].steps + 1,
                },
            }
        ),
        environment=an_environment(),
        model=a_model() if model else None,
        weights=a_manifest() if model else None,
        stated_costs=tuple(stated_cost(plan) for plan in plans),
        engine=EngineDescription(
            name="llmprof reference engine",
            kernels={
                "projections": "torch.nn.functional.linear",
                "attention": "torch.nn.functional.scaled_dot_product_attention",
            },
            compute_dtype="bf16",
            kv_dtype="bf16",
            kv_bytes_reserved=23_040 * 544,
            kv_bytes_used=23_040 * 521,
            weight_bytes=a_manifest().stored_bytes,
            threads=2,
            random_weights=random_weights,
        ),
        ceilings=Ceilings(
            measured_at=datetime(2026, 11, 29, 15, 44, tzinfo=UTC),
            environment=an_environment(),
            bandwidth=(),
            compute=(),
            fixed_cost=FixedCost(
                alpha_s=alpha_s, spread=alpha_spread, method="intercept of parallel add"
            ),
        ),
        warmup=Warmup(rounds=3, settled=settled, step_s=(0.0121, 0.0112, 0.0111)),
        rounds=tuple(one_round(index, grouped=False) for index in range(rounds)),
        grouped=tuple(
            one_round(index, grouped=True)
            for index in range(rounds if grouped_rounds is None else grouped_rounds)
        ),
        counted=_counted(plans) if counted else (),
        own_cost=OwnCost(
            probe_calls_per_step=12.0,
            seconds_per_probe_call=PROBE_CALL_S,
            seconds_in_group_per_probe_call=PROBE_CALL_IN_GROUP_S,
        ),
        output_sha256="0" * 64,
        phases=tuple(plan.phase for plan in plans),
        caveats=caveats,
    )


def a_report(record: RunRecord | None = None) -> Report:
    """The judged form of `record`, or of the default run."""
    from llmprof.analysis.report import build_report

    return build_report(record or a_run_record())
