"""Do runs of the same thing give the same verdicts, although the ceilings of the machine drift?

    python -m tests.benchmarks.same_verdict [MODEL|CONFIG] [--runs 10] [--spinner]

One line per run: the verdict of each phase and the read and matmul ceilings that it was judged by; then
how many different answers there were, and by how much the ceilings moved. With `--spinner` another process
spins on one core meanwhile: then every run must say that it was contended, and give no verdict.
Exit code 1 where verdicts differ (or, with a spinner, where there is one).
"""

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from llmprof import units
from llmprof.analysis.report import build_report
from llmprof.profiler import profile
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report
from llmprof.schema.verdict import Limit
from llmprof.store.settings_file import load_settings


def main() -> None:
    arguments = _arguments()
    sets = [f"measure.rounds={arguments.rounds}"] if arguments.rounds else []
    config = load_settings(arguments.model, {}, sets)
    reports = []
    with _spinner(wanted=arguments.spinner):
        for _ in range(arguments.runs):
            reports.append(build_report(profile(config)))
            print(_line(reports[-1]), flush=True)
    sys.exit(_contended(reports) if arguments.spinner else _same(reports))


@contextmanager
def _spinner(*, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _answer(report: Report, phase: Phase) -> str:
    verdict = next(one for one in report.verdicts if one.phase is phase)
    return f"{verdict.limit.value}, {verdict.saturation.value}".replace("_", " ")


def _line(report: Report) -> str:
    answers = "; ".join(
        f"{verdict.phase.value}: {_answer(report, verdict.phase)}" for verdict in report.verdicts
    )
    roof = report.roof
    if roof is None:
        return answers
    return (
        f"{answers}  (read {units.bytes_per_s(roof.read_bytes_per_s.point)}, matmul "
        f"{units.flops_per_s(roof.matmul_flops_per_s.point)})"
    )


def _same(reports: list[Report]) -> int:
    answers: dict[Phase, Counter[str]] = defaultdict(Counter)
    for report in reports:
        for verdict in report.verdicts:
            answers[verdict.phase][_answer(report, verdict.phase)] += 1
    for phase, counts in answers.items():
        told = ", ".join(f"{count} x {answer}" for answer, count in counts.most_common())
        print(f"{phase.value}: {told}")
    roofs = [report.roof for report in reports if report.roof is not None]
    for name, values in (
        ("read", [roof.read_bytes_per_s.point for roof in roofs]),
        ("matmul", [roof.matmul_flops_per_s.point for roof in roofs]),
    ):
        if values:
            print(f"the {name} ceiling moved by {units.ratio(max(values) / min(values))}")
    return int(any(len(counts) > 1 for counts in answers.values()))


def _contended(reports: list[Report]) -> int:
    said = sum("contended" in {one.code for one in report.caveats} for report in reports)
    judged = sum(
        any(verdict.limit is not Limit.INCONCLUSIVE for verdict in report.verdicts)
        for report in reports
    )
    print(f"{said} of {len(reports)} runs say contended; {judged} give a verdict all the same")
    return int(said < len(reports) or judged > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="sample_configs/demo.yaml")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--spinner", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
