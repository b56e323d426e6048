import json

import pytest
import typer
from typer.testing import CliRunner

from llmprof.ceilings import measure
from llmprof.cli.ceilings import ceilings
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.environment import Environment
from tests.unit.ceilings.factories import some_ceilings


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, object]]:
    """Threads and the refresh flag of each request."""
    requests: list[tuple[int, object]] = []

    def cached(environment: Environment, device: str, **options: object) -> Ceilings:
        assert device == "cpu"
        requests.append((environment.threads, options["refresh"]))
        return some_ceilings(environment)

    monkeypatch.setattr(measure, "cached_ceilings", cached)
    return requests


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(ceilings)
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_is_one_document_and_flags_arrive(asked: list[tuple[int, object]]) -> None:
    document = json.loads(run("--device", "cpu", "--threads", "1", "--refresh", "--json"))
    assert asked == [(1, True)]
    assert document["schema"] == "llmprof.ceilings/1"
    assert document["bandwidth"][0]["bytes_per_s"] == 30e9


def test_the_table_is_printed_by_default(asked: list[tuple[int, object]]) -> None:
    text = run("--device", "cpu")
    assert "30.0 GB/s" in text
    assert asked[0][1] is False
