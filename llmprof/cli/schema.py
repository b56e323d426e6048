"""`llmprof schema`: the JSON Schema of each document."""

import json
import sys
from typing import Annotated

import typer
from pydantic.json_schema import JsonSchemaMode

from llmprof.errors import InputError
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.comparison import Comparison
from llmprof.schema.confirmation import Confirmation
from llmprof.schema.diagnosis import Diagnosis
from llmprof.schema.gate_result import GateResult
from llmprof.schema.generation import Generation
from llmprof.schema.inspection import Inspection
from llmprof.schema.listing import Listing
from llmprof.schema.ncu import NcuCommands, NcuComparison
from llmprof.schema.noise import NoiseFloor
from llmprof.schema.plan import Plan
from llmprof.schema.prediction import Prediction
from llmprof.schema.quality import Quality
from llmprof.schema.record import Record, Setting
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.schema.sweep import Sweep

DOCUMENTS: dict[str, type[Record] | type[Setting]] = {
    "run": RunRecord,
    "report": Report,
    "comparison": Comparison,
    "gate": GateResult,
    "noise": NoiseFloor,
    "inspection": Inspection,
    "plan": Plan,
    "generation": Generation,
    "ceilings": Ceilings,
    "quality": Quality,
    "ncu": NcuComparison,
    "ncu-commands": NcuCommands,
    "prediction": Prediction,
    "confirmation": Confirmation,
    "sweep": Sweep,
    "diagnosis": Diagnosis,
    "listing": Listing,
    "settings": RunConfig,
}


def schema(
    document: Annotated[
        str | None,
        typer.Argument(metavar="DOCUMENT", help=" | ".join(DOCUMENTS), show_default=False),
    ] = None,
) -> None:
    """Print the JSON Schema of a document, or the names of all documents."""
    if document is None:
        sys.stdout.write("".join(f"{name}\n" for name in DOCUMENTS))
        return
    if document not in DOCUMENTS:
        raise InputError(f"no document '{document}'", remedy=f"Name one of {', '.join(DOCUMENTS)}")
    model = DOCUMENTS[document]
    # What is in a file that llmprof writes; for settings, what may be in one that it reads.
    mode: JsonSchemaMode = "validation" if model is RunConfig else "serialization"
    described = model.model_json_schema(by_alias=True, mode=mode)
    sys.stdout.write(json.dumps(described, indent=2, ensure_ascii=False) + "\n")
