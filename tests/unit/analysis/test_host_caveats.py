"""A CPU quota and pressure: in the run file, in the caveats, in the verdict."""

import pytest

from llmprof.analysis.comparable import why_not_comparable
from llmprof.analysis.host_caveats import host_caveats
from llmprof.analysis.report import build_report
from llmprof.analysis.validity import select_rounds
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit
from tests.records import QUIET, a_run_record


def with_quota(quota_cores: float | None, threads: int) -> RunRecord:
    record = a_run_record()
    environment = record.environment
    cpu = environment.cpu.model_copy(update={"quota_cores": quota_cores})
    changed = environment.model_copy(update={"cpu": cpu, "threads": threads})
    return record.model_copy(update={"environment": changed})


def caveats(record: RunRecord) -> list[Caveat]:
    return [*host_caveats(record, record.rounds)]


@pytest.mark.parametrize(
    ("quota_cores", "threads", "named"),
    [(1.5, 2, "2 threads"), (0.5, 1, "1 thread"), (1.5, 1, None), (2.0, 2, None), (None, 8, None)],
)
def test_more_threads_than_the_quota_pays_for_are_named(
    quota_cores: float | None, threads: int, named: str | None
) -> None:
    found = caveats(with_quota(quota_cores, threads))
    assert [one.code for one in found] == (["cpu-quota"] if named else [])
    if named:
        assert named in found[0].message
        assert f"{quota_cores:.2f}" in found[0].message or f"{quota_cores}" in found[0].message


def test_rounds_in_which_the_quota_was_used_up_are_rejected_and_nothing_is_judged() -> None:
    stopped = QUIET.model_copy(update={"quota_used_up_fraction": 0.5})
    record = a_run_record(contention=stopped)
    reasons = select_rounds(record.rounds).reasons
    assert len(reasons) == len(record.rounds)
    assert "CPU quota" in reasons[0]
    report = build_report(record)
    assert {verdict.limit for verdict in report.verdicts} == {Limit.INCONCLUSIVE}
    assert "contended" in {one.code for one in report.caveats}
    spared = QUIET.model_copy(update={"quota_used_up_fraction": 0.02})
    assert not select_rounds(a_run_record(contention=spared).rounds).reasons


def test_pressure_of_others_is_said_and_rejects_nothing() -> None:
    busy = a_run_record(contention=QUIET.model_copy(update={"pressure_fraction": 0.6}))
    (caveat,) = caveats(busy)
    assert (caveat.code, "60 %" in caveat.message) == ("pressure", True)
    assert not select_rounds(busy.rounds).reasons
    assert not caveats(a_run_record())


@pytest.mark.parametrize(
    ("variables", "threads", "named"),
    [
        ({"OMP_WAIT_POLICY": "PASSIVE"}, 2, "OMP_WAIT_POLICY=PASSIVE"),
        ({"GOMP_SPINCOUNT": "0"}, 2, "GOMP_SPINCOUNT=0"),
        ({"OMP_WAIT_POLICY": "active"}, 2, None),
        ({"OMP_WAIT_POLICY": "passive"}, 1, None),
    ],
)
def test_threads_that_sleep_between_ops_are_named_and_not_compared(
    variables: dict[str, str], threads: int, named: str | None
) -> None:
    awake = a_run_record()
    changed = {"variables": variables, "threads": threads}
    environment = awake.environment.model_copy(update=changed)
    record = awake.model_copy(update={"environment": environment})
    found = [one for one in caveats(record) if one.code == "threads-sleep"]
    assert [one.message.partition(":")[0] for one in found] == ([named] if named else [])
    reasons = [one for one in why_not_comparable(awake, record) if "sleep" in one]
    assert bool(reasons) == (environment.sleeps_between_ops is not None)
