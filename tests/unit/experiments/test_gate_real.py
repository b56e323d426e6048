"""The bench of real gates, with gates that are not real."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from llmprof.errors import LlmprofError, MeasurementFailedError
from llmprof.schema.gate_result import GateVerdict
from tests.benchmarks import gate_real


def ends(monkeypatch: pytest.MonkeyPatch, *outcomes: GateVerdict | LlmprofError) -> None:
    """Each gate in turn ends so."""
    coming: Iterator[GateVerdict | LlmprofError] = iter(outcomes)

    def run_gate(*_arms: object, **_options: object) -> SimpleNamespace:
        outcome = next(coming)
        if isinstance(outcome, LlmprofError):
            raise outcome
        return SimpleNamespace(verdict=outcome, pairs=(), judgements=())

    shape = {"model_type": "llama", "num_hidden_layers": 20}
    source = SimpleNamespace(config=SimpleNamespace(**shape))
    monkeypatch.setattr(gate_real, "run_gate", run_gate)
    monkeypatch.setattr(gate_real, "resolve_model", lambda *_name, **_options: source)
    monkeypatch.setattr(gate_real, "_config_file", lambda folder, *_shape: folder)
    monkeypatch.setattr("sys.argv", ["gate_real", "--same", "2", "--slower", "1"])


def test_a_gate_that_breaks_is_a_line_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = MeasurementFailedError("the candidate\nended", remedy="Look at its log")
    ends(monkeypatch, broken, GateVerdict.PASS, GateVerdict.FAIL)
    assert gate_real.main() == 1
    first, second, counts, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("same 1/2: ERROR        the candidate ended. Look at its log, ")
    assert second.startswith("same 2/2: PASS ")
    assert "1 PASS" in counts
    assert counts.endswith(", 1 ERROR of 2")


def test_gates_that_end_as_they_should_end_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    ends(monkeypatch, GateVerdict.PASS, GateVerdict.PASS, GateVerdict.FAIL)
    assert gate_real.main() == 0
