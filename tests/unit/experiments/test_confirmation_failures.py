"""An intervention that a device refuses, whatever it says, loses none of those after it."""

from typing import Any

import pytest

from llmprof.experiments import confirmation
from llmprof.experiments.confirmation import confirm_verdicts
from llmprof.experiments.intervention_bench import InterventionBench
from llmprof.schema.cost import Phase
from llmprof.schema.intervention import Intervention, InterventionKind
from tests.records import a_run_record


def test_what_torch_refuses_is_recorded_with_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(bench: Any) -> list[Intervention]:
        raise RuntimeError("CUDA error: operation not supported\nFor debugging consider ...")

    def make(bench: Any) -> list[Intervention]:
        return [
            Intervention(kind=InterventionKind.REPLAY, phase=Phase.DECODE, change="c", skipped="s")
        ]

    kinds = (InterventionKind.QUEUE_AHEAD, InterventionKind.REPLAY)
    monkeypatch.setattr(InterventionBench, "open", lambda *_, **__: None)
    monkeypatch.setattr(
        confirmation, "INTERVENTIONS", dict(zip(kinds, (refuse, make), strict=True))
    )
    record = a_run_record(rounds=1)
    made = confirm_verdicts(record.settings, record, kinds=kinds).interventions
    assert [(one.kind, one.skipped) for one in made] == [
        (InterventionKind.QUEUE_AHEAD, "CUDA error: operation not supported"),
        (InterventionKind.REPLAY, "s"),
    ]
