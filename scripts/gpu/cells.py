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


_BASE_ON_GPU: Final[Settings] = {
    "weights.source": "random",
    "weights.dtype": "bf16",
    "execution.mode": "cuda_graph",
    "workload.prompt_tokens": 512,
    "workload.output_tokens": 17,
    "measure.rounds": 4,
    "measure.warmup": 2,
}
_LONG: Final = {"workload.context": "synthetic"}


def _context(tokens: int, **changes: Any) -> dict[str, Any]:
    return {"workload.prompt_tokens": tokens, **_LONG, **changes}


_ON_GPU: Final = (
    Cell("base"),
    Cell("eager", {"execution.mode": "eager"}),
    Cell("compiled", {"execution.mode": "compiled"}),
    Cell("paged", {"kv_cache.layout": "paged"}),
    Cell("standard", {"attention.kind": "standard"}),
    Cell("fp16", {"weights.dtype": "fp16"}),
    Cell("int8", {"weights.quantization": "int8"}, "quantized"),
    Cell("int4", {"weights.quantization": "int4"}, "quantized"),
    Cell("fp8", {"weights.quantization": "fp8"}, "quantized"),
    Cell("int4-batch-8", {"weights.quantization": "int4", "workload.batch": 8}, "quantized"),
    Cell("int4-batch-32", {"weights.quantization": "int4", "workload.batch": 32}, "quantized"),
    Cell("batch-8", {"workload.batch": 8}, "size"),
    Cell("batch-32", {"workload.batch": 32}, "size"),
    Cell("batch-128", {"workload.batch": 128}, "size"),
    Cell("paged-batch-32", {"workload.batch": 32, "kv_cache.layout": "paged"}, "size"),
    Cell("context-4k", _context(4096), "size"),
    Cell("context-32k", _context(32768 - 32), "size"),
    Cell("paged-32k", _context(32768 - 32, **{"kv_cache.layout": "paged"}), "size"),
    Cell("kv-fp8-32k", _context(32768 - 32, **{"kv_cache.dtype": "fp8"}), "size"),
    Cell("kv-int8-32k", _context(32768 - 32, **{"kv_cache.dtype": "int8"}), "size"),
    Cell("standard-32k", _context(32768 - 32, **{"attention.kind": "standard"}), "size"),
    Cell("prefill-2k", {"workload.prompt_tokens": 2048, "workload.output_tokens": 3}, "prefill"),
    Cell("prefill-8k", {"workload.prompt_tokens": 8192, "workload.output_tokens": 3}, "prefill"),
    Cell(
        "prefill-8k-standard",
        {
            "workload.prompt_tokens": 8192,
            "workload.output_tokens": 3,
            "attention.kind": "standard",
        },
        "prefill",
    ),
    Cell("eager-batch-32", {"execution.mode": "eager", "workload.batch": 32}, "prefill"),
)

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
    Cell("fp8", {"weights.quantization": "fp8"}, "quantized"),
)
"""A dry run: enough to see that every path of the check works."""


def base_settings(device: str) -> Settings:
    return {"device": device, **(_BASE_ON_CPU if device == "cpu" else _BASE_ON_GPU)}


def cells(device: str) -> tuple[Cell, ...]:
    """In order of worth: whatever runs out of time, the first ones are there."""
    return _ON_CPU if device == "cpu" else _ON_GPU


def groups(device: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.group for cell in cells(device)))
