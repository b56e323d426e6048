"""Check which number formats have a fast matmul here, by trying them."""

import time
from collections.abc import Callable, Mapping
from functools import partial

from llmprof import units
from llmprof.instruments.checks.outcome import missing, ok, warn
from llmprof.schema.diagnosis import Check
from llmprof.schema.environment import Environment

_SIZE = 512
_REPEATS = 5
_ENOUGH_NS = 100_000_000
_SLOW = 0.5
"""A dtype below this share of the fp32 rate runs on a reference path."""
_MATRIX_ISA = ("avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16", "amx_fp16")


def check_matmul(environment: Environment) -> Check:
    """Square matmul of size 512 per dtype on one core. Imports torch."""
    return judge_matmul(matmul_rates(), environment)


def judge_matmul(rates: Mapping[str, float | None], environment: Environment) -> Check:
    """`rates` as `matmul_rates` gives them; a dtype below half of fp32 has no fast path."""
    reference = rates["fp32"]
    if reference is None:
        return missing("matmul", "torch cannot multiply fp32 matrices", "Install torch again")
    parts, slow = [f"one core: fp32 {units.flops_per_s(reference)}"], []
    for dtype, rate in rates.items():
        if rate is None:
            parts.append(f"{dtype} none")
        elif dtype != "fp32":
            parts.append(f"{dtype} {units.ratio(rate / reference, 2)} that")
            if rate < _SLOW * reference:
                slow.append(dtype)
    known = set(environment.cpu.isa)
    isa = [name for name in _MATRIX_ISA if name in known]
    detail = ", ".join(parts) + f" ({', '.join(isa) or 'no matrix instructions'})"
    if slow:
        return warn(
            "matmul",
            f"{detail}: {' and '.join(slow)} without a fast path",
            f"Avoid {' and '.join(slow)} on this CPU",
        )
    return ok("matmul", detail)


def matmul_rates() -> dict[str, float | None]:
    """FLOP/s of one core by dtype; None where torch refuses the dtype.

    One thread and its CPU time, so that a busy machine does not make a dtype look slow.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        left, right = torch.randn(_SIZE, _SIZE), torch.randn(_SIZE, _SIZE)
        whole = torch.randint(-128, 128, (_SIZE, _SIZE), dtype=torch.int8)
        return {
            "fp32": _rate(partial(torch.mm, left, right)),
            "bf16": _rate(partial(torch.mm, left.bfloat16(), right.bfloat16())),
            "fp16": _rate(partial(torch.mm, left.half(), right.half())),
            "int8": _rate(partial(torch._int_mm, whole, whole)),
        }
    finally:
        torch.set_num_threads(threads)


def _rate(multiply: Callable[[], object]) -> float | None:
    """Best of 5 runs after a first one; a dtype that takes long is run fewer times."""
    try:
        multiply()
    except RuntimeError:
        return None
    best_ns, spent_ns = _ENOUGH_NS, 0
    for _ in range(_REPEATS):
        start_ns = time.thread_time_ns()
        multiply()
        taken_ns = time.thread_time_ns() - start_ns
        best_ns, spent_ns = min(best_ns, taken_ns), spent_ns + taken_ns
        if spent_ns > _ENOUGH_NS:
            break
    return 2 * _SIZE**3 / (best_ns / 1e9)
