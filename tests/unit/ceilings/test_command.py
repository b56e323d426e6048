import json
from collections.abc import Sequence
from datetime import timedelta

import pytest
import typer
from typer.testing import CliRunner

from llmprof.ceilings import complete
from llmprof.ceilings.complete import USUAL, ExtraPart
from llmprof.cli.ceilings import PARTS, ceilings
from llmprof.errors import InputError
from llmprof.schema.ceilings import Ceilings, HostCost
from llmprof.schema.environment import Environment
from tests.unit.ceilings.factories import NOON, some_ceilings

HOST = HostCost(
    mode="compiled",
    seconds_per_step=1.5e-3,
    median_s=1.6e-3,
    spread=0.05,
    layers=2,
    seconds_per_layer=2e-4,
    method="best of 5 rounds",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What each request asked for."""
    requests: list[dict[str, object]] = []

    def completed(
        environment: Environment, device: str, parts: Sequence[ExtraPart], **options: object
    ) -> Ceilings:
        assert device == "cpu"
        requests.append({"threads": environment.threads, "parts": tuple(parts), **options})
        found = {"host": (HOST,), "parts_measured_at": {"host": NOON - timedelta(days=1)}}
        return some_ceilings(environment).model_copy(update=found)

    monkeypatch.setattr(complete, "complete_ceilings", completed)
    return requests


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(ceilings)
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_is_one_document_and_flags_arrive(asked: list[dict[str, object]]) -> None:
    document = json.loads(run("--device", "cpu", "--threads", "1", "--refresh", "--json"))
    assert asked[0]["threads"] == 1
    assert (asked[0]["refresh"], asked[0]["refresh_base"]) == (True, True)
    assert document["schema"] == "llmprof.ceilings/1"
    assert document["bandwidth"][0]["bytes_per_s"] == 30e9
    assert document["host"][0]["seconds_per_layer"] == 2e-4


def test_every_usual_part_is_asked_for_and_printed(asked: list[dict[str, object]]) -> None:
    text = run("--device", "cpu")
    assert asked[0]["parts"] == USUAL
    assert asked[0]["refresh"] is False
    assert "30.0 GB/s" in text
    assert "1.50 ms" in text


def test_one_part_alone(asked: list[dict[str, object]]) -> None:
    text = run("--device", "cpu", "--only", "host", "--refresh", "--budget", "3")
    assert asked[0]["parts"] == (ExtraPart.HOST,)
    assert (asked[0]["refresh"], asked[0]["refresh_base"]) == (True, False)
    assert asked[0]["budget_s"] == 3.0
    assert "compiled" in text
    assert "30.0 GB/s" not in text


def test_an_unknown_part_is_refused_with_the_known_ones(asked: list[dict[str, object]]) -> None:
    with pytest.raises(InputError) as refused:
        run("--only", "skiny")
    assert all(part in refused.value.line() for part in PARTS)
    assert asked == []


def test_the_command_names_what_can_be_measured() -> None:
    assert set(PARTS) == {"base", *(part.value for part in ExtraPart)}
