"""Runs that hold more than the usual one: a confirmed switch, a GPU's sensors."""

from datetime import UTC, datetime

from llmprof.analysis.confirmation import confirm
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.report import build_report
from llmprof.schema.confirmation import Confirmation, OutputComparison
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report
from llmprof.schema.run import DeviceTelemetry, RunRecord
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run
from tests.records import a_run_record
from tests.step_plans import model_phase
from tests.unit.ceilings.factories import a_gpu

NO_COUNTER = "no GPM counters on this device"


def a_confirmation() -> Confirmation:
    """Threads 2 -> 1 were predicted from the base; the target's decode kernels then lost more."""
    base = a_base_run()
    slower = (model_phase(Phase.PREFILL), model_phase(Phase.DECODE, efficiency=0.45))
    prediction = predict(BaseRun.of(base), changed_settings(base.settings, ["execution.threads=1"]))
    return confirm(
        prediction,
        base,
        a_base_run(phases=slower),
        OutputComparison(same=False, tokens=8, equal_tokens=6),
        predicted_at=datetime(2026, 11, 29, 13, 59, tzinfo=UTC),
    )


def confirmed() -> Report:
    return build_report(a_base_run().model_copy(update={"confirmations": (a_confirmation(),)}))


def on_a_gpu() -> RunRecord:
    """1.98 GHz and 500 W in the first round, 30 MHz less and 10 W more in each that follows."""
    record = a_run_record(rounds=3)
    rounds = tuple(
        one.model_copy(
            update={
                "telemetry": DeviceTelemetry(
                    sm_clock_hz=1.98e9 - 30e6 * one.index,
                    power_w=500.0 + 10.0 * one.index,
                    held_back_s={"power": 0.5},
                    interval_s=2.0,
                    missing={"dram_activity": NO_COUNTER},
                ),
                "contention": one.contention.model_copy(update={"canary_hz": None}),
            }
        )
        for one in record.rounds
    )
    environment = record.environment.model_copy(update={"gpu": a_gpu().gpu})
    return record.model_copy(update={"rounds": rounds, "environment": environment})
