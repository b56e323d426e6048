"""`llmprof run --confirm-verdict` on a small model: what was changed, and what is kept of it."""

import pytest

from llmprof.cli.app import execute
from llmprof.experiments.confirmation import confirm_verdicts
from llmprof.experiments.interventions import INTERVENTIONS
from llmprof.profiler import profile
from llmprof.schema.cost import Phase
from llmprof.schema.intervention import InterventionKind
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.runs import find_run


@pytest.fixture(autouse=True)
def few_pairs(known_ceilings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmprof.experiments.confirmation.PAIRS", 2)


def settings(model: str, **groups: dict[str, object]) -> RunConfig:
    small: dict[str, dict[str, object]] = {
        "weights": {"dtype": "fp32"},
        "execution": {"threads": 1},
        "workload": {"prompt_tokens": 4, "output_tokens": 4},
        "measure": {"warmup": 0, "rounds": 1, "passes": ["clean"]},
    }
    return RunConfig.model_validate({"model": model} | small | groups)


def by_kind(record: RunRecord) -> dict[InterventionKind, list[Phase]]:
    made: dict[InterventionKind, list[Phase]] = {}
    for one in record.interventions:
        if one.skipped is None:
            assert len(one.base_step_s) == len(one.changed_step_s) == 2
            made.setdefault(one.kind, []).append(one.phase)
    return made


def test_every_intervention_that_can_be_made_is_made_in_pairs(tiny: str) -> None:
    config = settings(tiny)
    record = confirm_verdicts(config, profile(config), pairs=2)

    assert record.status == "complete"
    made = by_kind(record)
    assert made.keys() >= {
        InterventionKind.HOST_SLEEP,
        InterventionKind.LONGER_CONTEXT,
        InterventionKind.CACHE_RESIDENT,
    }
    why = {one.kind: one.skipped for one in record.interventions if one.skipped}
    assert why[InterventionKind.QUEUE_AHEAD].startswith("a CPU has no queue")
    assert why[InterventionKind.FEWER_THREADS] == "there is only one"
    slept = next(one for one in record.interventions if one.kind is InterventionKind.HOST_SLEEP)
    assert slept.added_host_s is not None
    assert min(slept.changed_step_s) >= slept.added_host_s


def test_an_interrupt_keeps_what_was_made_and_says_partial(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(bench: object) -> None:
        raise KeyboardInterrupt

    config = settings(tiny)
    record = profile(config)
    monkeypatch.setitem(INTERVENTIONS, InterventionKind.QUEUE_AHEAD, interrupted)
    record = confirm_verdicts(config, record, pairs=2)

    assert record.status == "partial"
    assert [one.kind for one in record.interventions] == [InterventionKind.HOST_SLEEP]


def test_the_command_tests_its_verdicts_and_saves_the_outcome(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--dtype", "fp32", "--threads", "1", "--rounds", "3", "--set", "measure.warmup=0"]
    few += ["--prompt-tokens", "4", "--output-tokens", "4"]
    assert execute(["run", tiny, *few, "--confirm-verdict"]) == 0

    assert find_run("@last").settings.measure.confirm
    assert len(find_run("@last").interventions) >= 6
    assert "Tested:" in capsys.readouterr().out


def test_requests_cannot_be_tested_so(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    served = ["--set", "batching.policy=continuous", "--set", "workload.kind=trace"]
    assert execute(["run", tiny, *served, "--confirm-verdict"]) == 7
    assert "measure.confirm has no effect" in capsys.readouterr().err
