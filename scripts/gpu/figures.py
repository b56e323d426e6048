"""Each figure that the check must show beside its bound: met, missed, or not measured and why."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from llmprof.analysis.report import build_report
from llmprof.errors import LlmprofError
from llmprof.schema.ceilings import Ceilings, ComputeCeiling
from llmprof.schema.report import Report, RooflinePoint
from llmprof.store.runs import find_run
from scripts.gpu.job import in_one_line
from scripts.gpu.predictions import Predicted, predicted_cells

Found = Mapping[str, Any]
"""Findings of every part, by name."""
_COUNT_WITHIN: Final = 0.05
_NCU_CASES: Final = ("weights", "kv", "int4", "standard")
_DECODES: Final = (
    ("base", "8B decode at batch 1 with graphs, bf16, over the read ceiling", 0.85),
    ("int8", "the same with int8 weights, on their packed bytes", 0.80),
    ("int4", "the same with int4 weights, on their packed bytes", 0.80),
    ("paged-32k", "paged decode at 32k tokens, over the read ceiling", 0.85),
)


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    bound: str
    value: float | None = None
    met: bool | None = None
    """None where it was not measured."""
    words: str = ""

    @property
    def status(self) -> Literal["met", "missed", "not measured"]:
        if self.met is None:
            return "not measured"
        return "met" if self.met else "missed"


def figures(found: Found) -> tuple[Figure, ...]:
    """In the order of the list that they answer."""
    ceilings = Ceilings.model_validate(found["ceilings"]) if "ceilings" in found else None
    predicted = predicted_cells(found)
    return (
        _tests(found),
        *_ceilings(ceilings),
        *(_decode(found, *one) for one in _DECODES),
        _prefill(found, ceilings),
        *(_counted(found, case) for case in _NCU_CASES),
        *_partition(found),
        *_predictions(predicted),
        _instruments(found),
    )


def _tests(found: Found) -> Figure:
    name, bound, told = "GPU tests", "all pass", _all_tests(found)
    if not told["collected"]:
        return _absent(name, bound, "none of them ended")
    failed, ended = told["failed"], told["passed"] + len(told["failed"]) + len(told["skipped"])
    words = f"{told['passed']} of {told['collected']} passed, {len(told['skipped'])} skipped"
    if failed:
        words += f"; {', '.join(one.rpartition('::')[2] for one in failed)}"
    all_passed = not failed and ended == told["collected"]
    return Figure(name, bound, told["passed"] / told["collected"], all_passed, words)


def _all_tests(found: Found) -> dict[str, Any]:
    """Of all processes that shared them out."""
    shares = [told for name, told in found.items() if name == "tests" or name.startswith("tests-")]
    return {
        **{key: sum(one[key] for one in shares) for key in ("collected", "passed")},
        **{key: [name for one in shares for name in one[key]] for key in ("failed", "skipped")},
    }


def _at_least(name: str, value: float, bound: float, words: str = "") -> Figure:
    return Figure(name, f"at least {bound:.0%}", value, value >= bound, words)


def _absent(name: str, bound: str, why: str) -> Figure:
    return Figure(name, bound, words=why)


def _ceilings(ceilings: Ceilings | None) -> Iterator[Figure]:
    read, burst = "read ceiling over the datasheet", "bf16 matmul, burst, over the datasheet"
    sheet = ceilings.datasheet if ceilings else None
    if ceilings is None or sheet is None:
        why = (
            "no ceilings were measured" if ceilings is None else "the device has no datasheet here"
        )
        yield _absent(read, "at least 90%", why)
        yield _absent(burst, "at least 78%", why)
        return
    reads = [one.bytes_per_s for one in ceilings.bandwidth if one.op.value == "read"]
    far = [
        one.bytes_per_s
        for one in ceilings.bandwidth
        if one.op.value == "read" and one.level in ("HBM", "DRAM")
    ]
    if sheet.memory_bytes_per_s and reads:
        yield _at_least(read, max(far or reads) / sheet.memory_bytes_per_s, 0.90)
    else:
        yield _absent(read, "at least 90%", "the datasheet states no bandwidth")
    rates = [one.flops_per_s for one in ceilings.compute if one.dtype == "bf16"]
    if rates and "bf16" in sheet.flops_per_s:
        beside = "; ".join(
            f"{one.regime} {one.flops_per_s / 1e12:.0f} TFLOP/s{_clock(one)}"
            for one in (*ceilings.compute, *ceilings.sustained)
            if one.dtype == "bf16"
        )
        yield _at_least(burst, max(rates) / sheet.flops_per_s["bf16"], 0.78, beside)
    else:
        yield _absent(burst, "at least 78%", "no bf16 ceiling, or no peak in the datasheet")


def _clock(one: ComputeCeiling) -> str:
    return "" if one.sm_clock_hz is None else f" at {one.sm_clock_hz / 1e9:.2f} GHz"


def _sustained(ceilings: Ceilings) -> float:
    rates = [one.flops_per_s for one in ceilings.sustained if one.dtype == "bf16"]
    return max(rates, default=0.0)


def report_of(found: Found, cell: str) -> Report | str:
    """The report of a measured cell, or why there is none."""
    told = found.get(f"cell-{cell}")
    if told is None:
        return "its part did not come to it"
    if "run" not in told:
        return str(told["not_measured"])
    return _built(told["run"])


@functools.cache
def _built(run: str) -> Report | str:
    """Once: the summary is written again after every part of the check."""
    try:
        return build_report(find_run(run))
    except LlmprofError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 (one run that cannot be read costs its own cell)
        return in_one_line(error)


def _point(report: Report, label: str) -> RooflinePoint | None:
    return next((one for one in report.points if one.label == label), None)


def _decode(found: Found, cell: str, name: str, bound: float) -> Figure:
    report = report_of(found, cell)
    if isinstance(report, str):
        return _absent(name, f"at least {bound:.0%}", report)
    point = _point(report, "decode")
    if point is None or report.roof is None:
        return _absent(
            name, f"at least {bound:.0%}", "the run has no decode, or no ceiling beside it"
        )
    fraction = point.achieved_bytes_per_s.point / report.roof.read_bytes_per_s.point
    return _at_least(name, fraction, bound, report.verdicts[-1].sentence)


def _prefill(found: Found, ceilings: Ceilings | None) -> Figure:
    name = "prefill of 8k tokens over the sustained matmul ceiling"
    report = report_of(found, "prefill-8k")
    if isinstance(report, str):
        return _absent(name, "at least 75%", report)
    point = _point(report, "prefill")
    sustained = 0.0 if ceilings is None else _sustained(ceilings)
    if point is None or not sustained:
        return _absent(name, "at least 75%", "the run has no prefill, or no sustained ceiling")
    return _at_least(name, point.achieved_flops_per_s.point / sustained, 0.75)


def _counted(found: Found, case: str) -> Figure:
    name, bound = f"DRAM bytes of ncu over counted ones: {case}", "within 5%"
    told = found.get("ncu", {})
    of_case = told.get(case, told)
    if "ratio" not in of_case:
        return _absent(name, bound, str(of_case.get("not_measured", "its part did not come to it")))
    ratio = float(of_case["ratio"])
    return Figure(name, bound, ratio, abs(ratio - 1) <= _COUNT_WITHIN)


def _partition(found: Found) -> Iterator[Figure]:
    told = found.get("verdicts", {})
    for phase, roof in (("decode", "read"), ("prefill", "matmul")):
        name = f"in an SM partition {phase} follows the {roof} roof"
        made = [
            one
            for one in told.get("outcomes", ())
            if one["kind"] == "fewer_sms" and one["phase"] == phase
        ]
        if not made:
            why = str(told.get("not_measured", "its part did not come to it"))
            yield _absent(name, "survives", why)
        else:
            yield Figure(name, "survives", met=made[0]["survived"], words=made[0]["words"])
            yield _exponent(told, phase)


def _exponent(told: Found, phase: str) -> Figure:
    """Of the step's time over the inverse of the multiprocessors; the bound was written down before."""
    name, found = f"exponent of {phase} over fewer multiprocessors", told.get("exponents", {})
    if phase not in found:
        return _absent(name, "as expected", "no pair of steps was measured")
    low, high = found[phase]["expected"]
    exponent = found[phase]["exponent"]
    return Figure(name, f"{low:g} to {high:g}", None, found[phase]["met"], f"{exponent:.2f}")


def _predictions(cells: tuple[Predicted, ...]) -> Iterator[Figure]:
    """Bounds of the published table for CPUs, which predictions on a GPU are held to as well."""
    names = ("median error of predictions", "worst error of predictions")
    inside = "measurements inside the intervals of predictions"
    if not cells:
        why = "no cell was predicted and measured"
        yield _absent(names[0], "at most 8%", why)
        yield _absent(names[1], "at most 20%", why)
        yield _absent(inside, "at least 85%", why)
        return
    errors = sorted(abs(one.error) for one in cells)
    middle = errors[len(errors) // 2]
    worst = max(cells, key=lambda one: abs(one.error))
    yield Figure(names[0], "at most 8%", middle, middle <= 0.08, f"{len(cells)} phases of cells")
    yield Figure(names[1], "at most 20%", errors[-1], errors[-1] <= 0.20, worst.name)
    yield _at_least(inside, sum(one.inside for one in cells) / len(cells), 0.85)


def _instruments(found: Found) -> Figure:
    name, bound = "what the instruments cost a clean step", "at most 1%"
    report = report_of(found, "base")
    if isinstance(report, str) or report.own_cost is None:
        why = report if isinstance(report, str) else "the run has no step"
        return _absent(name, bound, why)
    share = report.own_cost.clean_fraction
    return Figure(name, bound, share, share <= 0.01)
