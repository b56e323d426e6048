"""Versions of the installed libraries, told without importing them."""

import importlib.util
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from llmprof import __version__
from llmprof.instruments.system_file import read_text

_DISTRIBUTIONS = (
    *("numpy", "numba", "triton", "torchao", "flashinfer-python", "safetensors", "tokenizers"),
    *("gguf", "nvidia-ml-py"),
)


@dataclass(frozen=True, slots=True)
class TorchBuild:
    version: str
    """With the local part that names the build: `2.13.0+cpu`."""
    cuda: str | None
    """CUDA version it was built for; None for a CPU build."""


def torch_build() -> TorchBuild | None:
    """The installed torch, read from its `version.py` (an import takes seconds); None without."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = read_text(Path(spec.origin).parent / "version.py") or ""
    version = re.search(r"^__version__ = ['\"](.+?)['\"]", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b.*= ['\"](.+?)['\"]", text, re.MULTILINE)
    return TorchBuild(
        version=version[1] if version else "unknown",
        cuda=cuda[1] if cuda else None,
    )


def library_versions() -> dict[str, str]:
    """By distribution, torch first (and the CUDA of its build); what is absent is left out."""
    build = torch_build()
    versions = {} if build is None else {"torch": build.version}
    if build is not None and build.cuda is not None:
        versions["cuda"] = build.cuda
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions | {"llmprof": __version__}


def python_version() -> str:
    """`CPython 3.12.4`."""
    return f"{platform.python_implementation()} {platform.python_version()}"
