"""`llmprof gate check`: saved runs against a baseline, and against budgets."""

import json
from pathlib import Path

import pytest

from llmprof.analysis.metrics import TPOT, TTFT
from llmprof.cli.app import execute
from llmprof.schema.noise import MetricNoise, NoiseFloor
from llmprof.schema.run import RunRecord
from llmprof.store.noise_floors import save_noise_floor, workload_key
from llmprof.store.runs import save_run
from tests.fake_arms import Fake, write_settings
from tests.records import QUIET, a_run_record

WAITING = QUIET.model_copy(update={"worst_thread_fraction": 0.5})


def save(run_id: str, **changes: object) -> RunRecord:
    record = a_run_record(rounds=6).model_copy(update={"id": run_id, **changes})
    save_run(record)
    return record


def test_check_needs_a_baseline_or_a_budget(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    save("20261129T154500Z-a-b1-p512-1a2b3c40")
    assert execute(["gate", "check", "@last"]) == 4
    assert "there is no baseline" in capsys.readouterr().err


def test_check_of_other_work_or_another_machine_ends_with_4(fake: Fake) -> None:
    record = save("20261129T154500Z-a-b1-p512-1a2b3c40")
    other = record.environment.model_copy(update={"fingerprint": "ffff"})
    save("20261129T154501Z-a-b1-p512-1a2b3c41", environment=other)
    assert execute(["gate", "check", "@last", "--baseline", "@last~1"]) == 4


def test_check_by_budgets_alone(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("20261129T154500Z-a-b1-p512-1a2b3c40")
    for limit, code in ((1.0, 0), (0.001, 1)):
        budget = f"  budgets: [{{name: decode.tpot_s.p50, max: {limit}}}]\n"
        write_settings(tmp_path / "gate.yaml", budget)
        assert execute(["gate", "check", "@last", "--settings", "gate.yaml"]) == code
    assert "the whole interval is outside the budget" in capsys.readouterr().out


def test_check_compares_counts_exactly_and_claims_nothing_of_one_launch(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    record = save("20261129T154500Z-a-b1-p512-1a2b3c40")
    save("20261129T154501Z-a-b1-p512-1a2b3c41")
    assert execute(["gate", "check", "@last", "--baseline", "@last~1", "--json"]) == 0
    verdicts = {
        one["metric"]["name"]: one["verdict"]
        for one in json.loads(capsys.readouterr().out)["judgements"]
    }
    assert verdicts["decode.tpot_s.p50"] == "inconclusive"
    assert "decode.roof_fraction.p50" not in verdicts
    assert verdicts["weights.bytes"] == "pass"
    engine = record.engine.model_copy(update={"weight_bytes": record.engine.weight_bytes + 1})
    save("20261129T154502Z-a-b1-p512-1a2b3c42", engine=engine)
    assert execute(["gate", "check", "@last", "--baseline", "@last~1"]) == 1


def test_check_of_single_launches_passes_where_their_noise_is_known(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of times, which is all that can be calibrated."""
    record = save("20261129T154500Z-a-b1-p512-1a2b3c40")
    save("20261129T154501Z-a-b1-p512-1a2b3c41")
    noise = MetricNoise(
        name=TTFT,
        pair_spread=0.01,
        num_pairs=24,
        launch_spread=0.002,
        num_launches=8,
        paired_floor=0.005,
        launch_floor=0.01,
    )
    save_noise_floor(
        NoiseFloor(
            created=record.created,
            environment_fingerprint=record.environment.fingerprint,
            workload_key=workload_key(record.settings),
            metrics=(noise, noise.model_copy(update={"name": TPOT})),
        )
    )
    assert execute(["gate", "check", "@last", "--baseline", "@last~1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pass"


def test_check_of_a_contended_run_ends_with_5(fake: Fake) -> None:
    save("20261129T154500Z-a-b1-p512-1a2b3c40")
    busy = a_run_record(rounds=6, contention=WAITING)
    save_run(busy.model_copy(update={"id": "20261129T154501Z-a-b1-p512-1a2b3c41"}))
    assert execute(["gate", "check", "@last", "--baseline", "@last~1"]) == 5
