"""Public models by their configuration, and what is known of each (tests/data/public_models.json)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmprof.architectures.config_json import parse_config
from llmprof.schema.model import ModelConfig

_DATA = Path(__file__).parent / "data" / "public_models.json"


@dataclass(frozen=True, slots=True)
class PublicModel:
    name: str
    config: dict[str, Any]
    known: dict[str, Any]

    @property
    def model(self) -> ModelConfig:
        return parse_config(self.config, name=self.name)


def _read() -> tuple[PublicModel, ...]:
    models = json.loads(_DATA.read_text())["models"]
    return tuple(PublicModel(one["name"], one["config"], one["known"]) for one in models)


PUBLIC_MODELS = _read()


def public_config(name: str, **changes: object) -> dict[str, Any]:
    """config.json of the one model whose name ends so; a change to `...` removes the field."""
    (found,) = (one.config for one in PUBLIC_MODELS if one.name.endswith(name))
    return {key: value for key, value in (found | changes).items() if value is not ...}


def public_model(name: str, **changes: object) -> ModelConfig:
    return parse_config(public_config(name, **changes), name=name)
