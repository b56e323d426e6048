"""Counted against measured: DRAM bytes and FLOPs of a phase, from a file of Nsight Compute."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from llmprof.errors import InputError
from llmprof.schema.cost import Phase
from llmprof.schema.ncu import NcuComparison, NcuPhase
from llmprof.schema.report import Report
from llmprof.store.ncu_csv import ProfiledKernel

_TIME: Final = "gpu__time_duration.sum"
_DRAM: Final = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_DRAM_TOTAL: Final = "dram__bytes.sum"
_TENSOR: Final = "sm__ops_path_tensor_"
_SIMT: Final = {
    **{f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": 1 for op in ("fadd", "fmul")},
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 2,
    **{f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": 2 for op in ("hadd", "hmul")},
    "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum": 4,
}
"""FLOP per instruction: a fused multiply-add is two, and half-precision ones work on pairs."""


_TENSOR_BY_DTYPE: Final = {
    "bf16": "src_bf16_dst_fp32",
    "fp16": "src_fp16_dst_fp32",
    "fp32": "src_tf32_dst_fp32",
    "fp8": "src_fp8_dst_fp32",
    "int8": "src_int8",
}
"""Tensor operations by what a run computes in; fp32 goes there as tf32, where torch is told to."""


def metrics_for(*compute_dtypes: str) -> tuple[str, ...]:
    """What `ncu --metrics` must be given for both comparisons.

    Without the tensor metric of an unknown dtype: hardware FLOPs are then missing, not too few.
    """
    tensor = [_TENSOR_BY_DTYPE.get(dtype) for dtype in compute_dtypes]
    of_flops = (*(f"{_TENSOR}{one}.sum" for one in tensor), *_SIMT) if all(tensor) else ()
    return (_TIME, *_DRAM, *of_flops)


def compare_with_counters(
    report: Report,
    kernels: Sequence[ProfiledKernel],
    *,
    file: str,
    phase: Phase | None,
    steps: int,
) -> NcuComparison:
    """Per phase, counters of one step beside the counts of the run's median step.

    Args:
        report: the run that the counts are from.
        kernels: as profiled; a kernel belongs to the phase whose NVTX range (`llmprof.decode`) it
            lies in.
        file: where they are from.
        phase: of every kernel, where there were no ranges.
        steps: of each phase that were profiled.

    Raises:
        InputError: no kernel is in a range of a phase, and none was named.
    """
    by_phase = {one: [k for k in kernels if _is_of(k, one, phase)] for one in Phase}
    found = {one: of_phase for one, of_phase in by_phase.items() if of_phase}
    if not found:
        raise InputError(
            f"no kernel in {file} lies in an NVTX range named llmprof.prefill or llmprof.decode",
            remedy="Say which phase was profiled: --phase decode",
        )
    phases = tuple(_phase(report, one, of_phase, steps) for one, of_phase in found.items())
    return NcuComparison(run_id=report.run.id, file=file, phases=phases)


def _is_of(kernel: ProfiledKernel, phase: Phase, named: Phase | None) -> bool:
    return phase is named if named is not None else f"llmprof.{phase.value}" in kernel.labels


def _phase(report: Report, phase: Phase, kernels: Sequence[ProfiledKernel], steps: int) -> NcuPhase:
    point = next((one for one in report.points if one.label == phase.value), None)
    dram_bytes, flops, time_s = dram_bytes_of(kernels), hardware_flops_of(kernels), _time_s(kernels)
    missing = {
        name: reason
        for name, value, reason in (
            ("dram_bytes", dram_bytes, f"the file has no {' and '.join(_DRAM)} of every kernel"),
            ("hardware_flops", flops, f"the file has no {_TENSOR}... of every kernel"),
            ("gpu_time_s", time_s, f"the file has no {_TIME} of every kernel"),
            ("counted_bytes", point, f"the run has no {phase.value} that could be counted"),
            ("analytic_flops", point, f"the run has no {phase.value} that could be counted"),
        )
        if value is None
    }
    counted = point.bytes_required if point else None
    per_step = None if dram_bytes is None else dram_bytes / steps
    return NcuPhase(
        phase=phase,
        steps=steps,
        kernels=max(1, round(len(kernels) / steps)),
        gpu_time_s=None if time_s is None else time_s / steps,
        dram_bytes=per_step,
        counted_bytes=counted,
        counted_bytes_with_activations=point.bytes_with_activations if point else None,
        amplification=per_step / counted if per_step and counted else None,
        hardware_flops=None if flops is None else flops / steps,
        analytic_flops=point.flops if point else None,
        missing=missing,
    )


def dram_bytes_of(kernels: Iterable[ProfiledKernel]) -> float | None:
    """Read and written; None unless every kernel has both, or their total."""
    total = 0.0
    for kernel in kernels:
        values = [kernel.metrics.get(name) for name in _DRAM]
        read, written = values
        if read is not None and written is not None:
            total += read + written
        elif _DRAM_TOTAL in kernel.metrics:
            total += kernel.metrics[_DRAM_TOTAL]
        else:
            return None
    return total


def hardware_flops_of(kernels: Iterable[ProfiledKernel]) -> float | None:
    """Tensor and SIMT operations; None unless every kernel has a tensor metric.

    `sm__ops_path_tensor_*` are operations already, a fused multiply-add being two. A metric and the
    parts that it is the sum of (`..._sparsity_off`) are never both added.
    """
    total = 0.0
    for kernel in kernels:
        tensor = _without_parts(kernel.metrics)
        if not tensor:
            return None
        total += sum(tensor.values())
        total += sum(weight * kernel.metrics.get(name, 0.0) for name, weight in _SIMT.items())
    return total


def _without_parts(metrics: Mapping[str, float]) -> dict[str, float]:
    """Tensor metrics that no other one of the file includes.

    Those by source type (`src_bf16...`) include those by instruction (`op_hgmma_src_bf16...`), and
    a name includes every name that it is the beginning of.
    """
    found = {
        name.removesuffix(".sum"): value
        for name, value in metrics.items()
        if name.startswith(_TENSOR) and name.endswith(".sum")
    }
    by_source = {name: value for name, value in found.items() if name.startswith(f"{_TENSOR}src_")}
    kept = by_source or found
    return {
        name: value
        for name, value in kept.items()
        if not any(name.startswith(f"{other}_") for other in kept)
    }


def _time_s(kernels: Iterable[ProfiledKernel]) -> float | None:
    times = [kernel.metrics.get(_TIME) for kernel in kernels]
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None
