"""The engine cells of the check: one base, and one switch changed at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Settings = Mapping[str, Any]
"""Dotted key -> value."""


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    changes: Settings = field(default_factory=dict)
    group: str = "decode"
    """Cells of a group share a process."""
    least_s: float = 5.0
    """With less than this left of its group it is not started."""


_BASE_ON_GPU: Final[Settings] = {
    "weights.source": "random",
    "weights.dtype": "bf16",
    "execution.mode": "cuda_graph",
    "workload.prompt_tokens": 512,
    "workload.output_tokens": 17,
    "measure.rounds": 4,
    "measure.warmup": 2,
}


def _filled(tokens: int, **changes: Any) -> dict[str, Any]:
    """So many cached tokens without a prefill, which would take longer than all decode steps."""
    return {"workload.prompt_tokens": tokens, "workload.context": "synthetic", **changes}


def _batch(sequences: int, **changes: Any) -> dict[str, Any]:
    return _filled(512, **{"workload.batch": sequences, **changes})


def _prompt(tokens: int, **changes: Any) -> dict[str, Any]:
    return {"workload.prompt_tokens": tokens, "workload.output_tokens": 3, **changes}


_LONG: Final = 32768 - 32
_PAGED: Final = {"kv_cache.layout": "paged"}
_STANDARD: Final = {"attention.kind": "standard"}
_INT8: Final = {"weights.quantization": "int8"}
_INT4: Final = {"weights.quantization": "int4"}


def _paged_by(backend: str) -> dict[str, Any]:
    """Blocks of 256 tokens, which the FlashAttention 2 of torch takes too."""
    paged = {**_PAGED, "kv_cache.block_tokens": 256, "attention.backend": backend}
    return _filled(_LONG, **paged)


_ON_GPU: Final = (
    Cell("base"),
    Cell("eager", {"execution.mode": "eager"}),
    Cell("prefill-8k", _prompt(8192)),
    Cell("paged-32k", _filled(_LONG, **_PAGED)),
    Cell("batch-32", _batch(32)),
    Cell("context-32k", _filled(_LONG)),
    Cell("paged", _PAGED),
    Cell("int4", _INT4, "quantized"),
    Cell("int4-batch-8", _batch(8, **_INT4), "quantized"),
    Cell("int4-batch-32", _batch(32, **_INT4), "quantized"),
    Cell("int8", _INT8, "quantized"),
    Cell("fp8", {"weights.quantization": "fp8"}, "quantized"),
    Cell("batch-8", _batch(8), "size"),
    Cell("batch-128", _batch(128), "size"),
    Cell("kv-fp8-32k", _filled(_LONG, **{"kv_cache.dtype": "fp8"}), "size"),
    Cell("paged-batch-32", _batch(32, **_PAGED), "size"),
    Cell("context-4k", _filled(4096), "size"),
    Cell("kv-int8-32k", _filled(_LONG, **{"kv_cache.dtype": "int8"}), "size"),
    Cell("prefill-2k", _prompt(2048), "size"),
    Cell("eager-batch-32", _batch(32, **{"execution.mode": "eager"}), "size"),
    Cell("standard", _STANDARD, "others"),
    Cell("standard-32k", _filled(_LONG, **_STANDARD), "others"),
    Cell("prefill-8k-standard", _prompt(8192, **_STANDARD), "others"),
    Cell("unfused", {"execution.fused": "off"}, "others", least_s=12.0),
    Cell("varlen-32k", _paged_by("varlen"), "others", least_s=12.0),
    Cell("flashinfer-32k", _paged_by("flashinfer"), "others", least_s=12.0),
    Cell("compiled", {"execution.mode": "compiled"}, "others", least_s=75.0),
)
"""Within a group those that share weights stand together: they are loaded once. The last four are
measured in time that parts before them left: torch.compile can take a minute for 32 layers."""

_BASE_ON_CPU: Final[Settings] = {
    **_BASE_ON_GPU,
    "execution.mode": "eager",
    "workload.prompt_tokens": 16,
    "workload.output_tokens": 4,
    "measure.rounds": 2,
    "measure.warmup": 1,
}
_ON_CPU: Final = (
    Cell("base"),
    Cell("compiled", {"execution.mode": "compiled"}),
    Cell("fused", {"execution.fused": "on"}, "refused"),
)
"""A dry run: enough to see that every path of the check works."""


def base_settings(device: str) -> Settings:
    return {"device": device, **(_BASE_ON_CPU if device == "cpu" else _BASE_ON_GPU)}


def cells(device: str) -> tuple[Cell, ...]:
    """In order of worth: whatever runs out of time, the first ones are there.

    Those that answer a bound of the summary come first, then one switch after the other.
    """
    return _ON_CPU if device == "cpu" else _ON_GPU


def groups(device: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.group for cell in cells(device)))


GATE_MODEL: Final = "llama-3.2-1b"


def gate_settings(device: str) -> Settings:
    """Of both arms of the A/A gate."""
    return {
        "device": device,
        "weights.source": "random",
        "workload.output_tokens": 16,
        "gate.rounds": 7,
        "gate.seconds_per_turn": 0.2,
    }
