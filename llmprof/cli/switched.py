"""Settings of an arm: those of the command with `KEY=VALUE` texts over them."""

from collections.abc import Sequence

from llmprof.errors import InputError
from llmprof.schema.settings import RunConfig
from llmprof.store.settings_file import changed_settings

_HOW_TO_MEASURE = ("measure", "gate", "sweep")


def switched(config: RunConfig, changes: Sequence[str], *, option: str) -> RunConfig:
    """`changes`: texts of one or several `key=value`, joined by commas; `option` gave them.

    Raises:
        InputError: as `changed_settings`.
    """
    texts = [text for one in changes for text in one.split(",")]
    return changed_settings(config, texts, option=option)


def check_unlike(base: RunConfig, target: RunConfig, *, told: str) -> None:
    """Raises InputError where two arms would do the same; how they are measured is the base's."""
    alike = {name: getattr(base, name) for name in _HOW_TO_MEASURE}
    if target.model_copy(update=alike) == base:
        raise InputError(f"{told} changes nothing", remedy="Name another value")
