import json

import pytest

from llmprof.cli.app import execute
from llmprof.schema.generation import Generation

NAMES = [
    "run",
    "report",
    "comparison",
    "gate",
    "noise",
    "inspection",
    "plan",
    "generation",
    "ceilings",
    "quality",
    "ncu",
    "ncu-commands",
    "prediction",
    "confirmation",
    "sweep",
    "diagnosis",
    "listing",
    "settings",
]


def test_without_a_name_the_documents_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["schema"]) == 0
    assert capsys.readouterr().out.split() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_names_its_document_and_describes_each_field(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["schema", name]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["type"] == "object"
    if name == "settings":
        assert described["additionalProperties"] is False
        assert described["required"] == ["model"]
    else:
        assert described["properties"]["schema"]["const"] == f"llmprof.{name}/1"


def test_a_document_has_the_keys_of_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["schema", "generation"]) == 0
    described = json.loads(capsys.readouterr().out)
    document = Generation(
        model="m", prompt_ids=(1,), output_ids=(2,), text="t", stopped="eos", random_weights=False
    )
    assert set(described["required"]) == set(json.loads(document.model_dump_json()))


def test_an_unknown_document_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["schema", "nothing"]) == 2
    assert capsys.readouterr().err == (
        f"llmprof: error: no document 'nothing'. Name one of {', '.join(NAMES)}\n"
    )
