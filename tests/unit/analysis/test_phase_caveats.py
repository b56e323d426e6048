"""Caveats about a phase's traffic and dtype, from figures chosen so that the answer is plain."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.ceilings import ComputeCeiling
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import DeviceTelemetry, RunRecord
from tests.records import QUIET
from tests.verdicts import multiplies, phase_record, reads

MIB = 1 << 20


def caveats(record: RunRecord, code: str) -> list[Caveat]:
    return [caveat for caveat in build_report(record).caveats if caveat.code == code]


def over_stream(record: RunRecord, size_bytes: int) -> RunRecord:
    """The read ceiling was taken over a stream of this size."""
    rounds = tuple(
        one.model_copy(
            update={
                side: reading.model_copy(update={"read_buffer_bytes": size_bytes})
                for side, reading in (("before", one.before), ("after", one.after))
                if reading is not None
            }
        )
        for one in record.rounds
    )
    return record.model_copy(update={"rounds": rounds})


def test_the_same_bytes_again_and_again_are_cache_resident() -> None:
    """270 MB per step, 2 MiB of them distinct, beside a cache of 32 MiB."""
    record = phase_record(reads(0.009))
    assert not caveats(record, "cache-resident")
    (caveat,) = caveats(over_stream(record, 2 * MIB), "cache-resident")
    assert "reads 2.00 MiB, the same ones again and again" in caveat.message


def test_a_stream_beyond_the_cache_is_not() -> None:
    assert not caveats(over_stream(phase_record(reads(0.009)), 64 * MIB), "cache-resident")


def with_matmuls(record: RunRecord, **flops_per_s: float) -> RunRecord:
    compute = tuple(
        ComputeCeiling(
            dtype=dtype,
            m=1024,
            n=1024,
            k=1024,
            flops_per_s=rate,
            median_flops_per_s=rate,
            spread=0.0,
            kernel="torch.mm",
        )
        for dtype, rate in flops_per_s.items()
    )
    ceilings = record.ceilings.model_copy(update={"compute": compute})
    return record.model_copy(update={"ceilings": ceilings})


@pytest.mark.parametrize(("bf16", "slow"), [(0.8e12, True), (1.4e12, True), (1.6e12, False)])
def test_half_the_bits_without_more_speed_are_no_fast_path(bf16: float, slow: bool) -> None:
    record = with_matmuls(phase_record(multiplies(0.009)), fp32=1e12, bf16=bf16)
    found = caveats(record, "dtype-without-fast-path")
    assert bool(found) is slow
    if slow:
        assert "bf16" in found[0].message
        assert "1.00 TFLOP/s" in found[0].message


def test_fp32_is_nobodys_narrow_dtype() -> None:
    record = with_matmuls(phase_record(multiplies(0.009, dtype="fp32")), fp32=1e12, bf16=0.5e12)
    assert not caveats(record, "dtype-without-fast-path")


def test_a_round_rejected_for_its_clock_does_not_take_the_reason_along() -> None:
    record = phase_record(reads(0.009))
    slow = QUIET.model_copy(update={"canary_hz": 2e9})
    hot = DeviceTelemetry(event_reasons=("hw_thermal_slowdown",))
    last = record.rounds[-1].model_copy(update={"contention": slow, "telemetry": hot})
    record = record.model_copy(update={"rounds": (*record.rounds[:-1], last)})
    (caveat,) = caveats(record, "throttled")
    assert "in 1 of 8 rounds: hw thermal slowdown" in caveat.message
