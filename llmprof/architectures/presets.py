"""Published configurations under short names, for work on paper or with random weights."""

from functools import cache
from importlib.resources import files
from typing import Final

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.fields import Fields
from llmprof.architectures.json_file import parse_json_object
from llmprof.schema.model import ModelConfig

_DATA_FILE: Final = "presets.json"
"""Preset -> hub id, and the fields of its published config.json that set the shape."""


def preset_names() -> tuple[str, ...]:
    """In the order of the data file: by family, then by size."""
    return tuple(_presets())


def preset_config(name: str) -> ModelConfig:
    """The configuration of a name from `preset_names`."""
    preset = Fields(_presets(), _DATA_FILE).nested(name)
    return parse_config(preset.mapping("config"), name=name, where=f"preset {name}")


@cache
def _presets() -> dict[str, object]:
    data = files("llmprof.architectures").joinpath(_DATA_FILE).read_bytes()
    return parse_json_object(data, _DATA_FILE)
