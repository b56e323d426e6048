"""Recorded steps of the demo model against another implementation, and a run from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from llmprof.engine.sampling import GreedySampler
from tests.tiny_decoders import load_engine, settings

KNOWN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "smollm2_greedy.json").read_text()
)["prompts"][0]


@pytest.mark.model
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_greedy_ids_of_the_demo_model(layout: str) -> None:
    engine = load_engine(
        settings(
            "smollm2-135m-instruct",
            weights={"dtype": "fp32"},
            kv_cache={"layout": layout},
            execution={"mode": "compiled"},
        )
    )
    generated = engine.generate(KNOWN["prompt_ids"], GreedySampler(), max_tokens=24)
    assert list(generated.ids) == KNOWN["greedy_ids"][:24]
