import pytest

from llmprof.analysis.cell_metrics import cell_metrics
from llmprof.analysis.report import build_report
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Part
from llmprof.schema.run import DeviceTelemetry, RunRecord
from llmprof.schema.sweep import CellMetrics
from tests.records import QUIET, a_run_record


def test_every_figure_is_the_report_s() -> None:
    report = build_report(a_run_record())
    metrics = cell_metrics(report)
    decode = metrics.of(Phase.DECODE)
    assert decode is not None
    measured = next(one for one in report.phases if one.phase is Phase.DECODE)
    ledger = next(one for one in report.ledgers if one.phase is Phase.DECODE)
    kv = next(part for part in ledger.parts if part.part is Part.MEMORY_KV)
    assert decode.step_s == measured.step_s
    assert metrics.output_tokens_per_s == measured.new_tokens_per_s
    assert metrics.tpot_s == report.latency.tpot_s
    assert decode.kv_time_share == pytest.approx(kv.share)
    assert decode.traffic is not None
    kv_bytes = decode.traffic.kv_read + decode.traffic.kv_write
    counted = kv_bytes + decode.traffic.weights
    assert decode.kv_bytes_share == pytest.approx(kv_bytes / counted)
    assert (metrics.num_rounds, metrics.num_rejected_rounds) == (8, 0)
    assert metrics.device_peak_bytes is None
    assert metrics.power_w is None


def test_sensors_of_a_gpu_give_memory_and_power() -> None:
    record = a_run_record()
    readings = [(4e9, 300.0), (6e9, 320.0), (5e9, 360.0)]
    rounds = tuple(
        one.model_copy(
            update={"telemetry": DeviceTelemetry(memory_used_bytes=int(size), power_w=power)}
        )
        for one, (size, power) in zip(record.rounds, readings, strict=False)
    )
    metrics = metrics_of(record.model_copy(update={"rounds": rounds}))
    assert metrics.device_peak_bytes == 6_000_000_000
    assert metrics.power_w == 320.0


def metrics_of(record: RunRecord) -> CellMetrics:
    return cell_metrics(build_report(record))


def test_without_grouped_rounds_there_is_no_share_of_time() -> None:
    metrics = metrics_of(a_run_record(grouped_rounds=0))
    decode = metrics.of(Phase.DECODE)
    assert decode is not None
    assert decode.kv_time_share is None
    assert metrics.of(Phase.MIXED) is None


def test_a_cell_without_a_valid_round_keeps_the_reasons() -> None:
    waited = QUIET.model_copy(update={"run_queue_fraction": 0.3})
    every = metrics_of(a_run_record(rounds=4, contention=waited))
    assert every.disturbed
    assert every.disturbed_by == ("its threads waited for a CPU",)
    some = metrics_of(a_run_record(rounds=4, contention=[waited, waited, waited, QUIET]))
    assert not some.disturbed
    assert metrics_of(a_run_record()).disturbed_by == ()
