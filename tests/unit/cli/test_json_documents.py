"""Documents as they are written, against the JSON Schemas that `llmprof schema` prints."""

import json
from collections.abc import Callable
from typing import Any

import fastjsonschema
import pytest

from llmprof.analysis.compare import compare_reports
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.cli.app import execute
from llmprof.schema.record import Record
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run, device_ceilings
from tests.records import a_report, a_run_record


def a_prediction() -> Record:
    base = BaseRun.of(a_base_run())
    return predict(base, changed_settings(base.record.settings, ["weights.quantization=int4"]))


DOCUMENTS: dict[str, Callable[[], Record]] = {
    "run": a_run_record,
    "report": a_report,
    "comparison": lambda: compare_reports([a_report()], [a_report(a_run_record(seed=2))]),
    "prediction": a_prediction,
    "ceilings": lambda: device_ceilings(3e12, 9e14),
}


@pytest.fixture
def checker(capsys: pytest.CaptureFixture[str]) -> Callable[[str], Callable[[Any], object]]:
    def of(name: str) -> Callable[[Any], object]:
        assert execute(["schema", name]) == 0
        schema = json.loads(capsys.readouterr().out)
        check: Callable[[Any], object] = fastjsonschema.compile(schema)
        return check

    return of


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_validates_and_a_damaged_one_does_not(
    name: str, checker: Callable[[str], Callable[[Any], object]]
) -> None:
    check = checker(name)
    document = json.loads(DOCUMENTS[name]().model_dump_json())
    check(document)
    required = next(key for key in document if document[key] not in (None, []))
    del document[required]
    document["schema"] = "llmprof.other/9"
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        check(document)
