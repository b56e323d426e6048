"""A run of the demo model whose costs follow from its shape, and the parts of a prediction from it."""

from llmprof.schema.ceilings import BandwidthCeiling, Ceilings, ComputeCeiling, FixedCost, MemoryOp
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.prediction import GroupPrediction, PhasePrediction, Prediction
from llmprof.schema.run import RunRecord
from tests.records import a_run_record, an_environment


def a_base_run(**changes: object) -> RunRecord:
    """Batch 1, 512 prompt tokens, bf16, eager, without noise unless `changes` say so."""
    record = a_run_record(noise=0.0, **changes)  # type: ignore[arg-type]
    return record.model_copy(update={"stated_costs": ()})


def device_ceilings(read_bytes_per_s: float, flops_per_s: float, alpha_s: float = 2e-6) -> Ceilings:
    """Of some device with two read sizes and one dtype."""
    reads = tuple(
        BandwidthCeiling(
            op=MemoryOp.READ,
            level="DRAM",
            buffer_bytes=size,
            bytes_per_s=read_bytes_per_s,
            median_bytes_per_s=read_bytes_per_s,
            spread=0.0,
            kernel="read",
        )
        for size in (64 << 20, 1 << 30)
    )
    compute = ComputeCeiling(
        dtype="bf16",
        m=2048,
        n=2048,
        k=2048,
        flops_per_s=flops_per_s,
        median_flops_per_s=flops_per_s,
        spread=0.0,
        kernel="linear",
    )
    run = a_run_record(rounds=1)
    environment = an_environment().model_copy(
        update={"device_name": "Another CPU", "fingerprint": "fedcba9876543210"}
    )
    return Ceilings(
        measured_at=run.ceilings.measured_at,
        environment=environment,
        bandwidth=reads,
        compute=(compute,),
        fixed_cost=FixedCost(alpha_s=alpha_s, spread=0.0, method="stated"),
    )


def phase_of(prediction: Prediction, phase: Phase = Phase.DECODE) -> PhasePrediction:
    (found,) = (one for one in prediction.phases if one.phase is phase)
    return found


def group_of(phase: PhasePrediction, group: OpGroup | None) -> GroupPrediction:
    (found,) = (one for one in phase.groups if one.group is group)
    return found
