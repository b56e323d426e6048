"""The bottleneck zoo: is the verdict right where the answer is known by construction?

    python -m tests.benchmarks.zoo [--seeds 3] [--first-seed N] [--rounds 8] [--only WORDS] [--device cpu]

Every seed draws new sizes. One line per case: what is true, what the verdict says, its shares, right,
wrong or inconclusive; then the summary that the README quotes. Wants a quiet machine (a few minutes).
Nothing in `llmprof/analysis` is tuned on it: a wrong line is an error of measurement or of theory.
Exit code 1 where a verdict is wrong, or fewer than 90 % are right.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmprof.analysis.report import build_report
from llmprof.engine.workload import Workload
from llmprof.profiler import measure
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from tests.zoo.bench import Bench
from tests.zoo.cases import CASES, NotHere
from tests.zoo.simulated import FOREIGN, THROTTLED, throttled, with_foreign_process
from tests.zoo.starved import STARVED, starved_record
from tests.zoo.truth import Grade, Outcome, Truth, grade

WANTED_RIGHT = 0.90
SHOWN_SHARE = 0.02
_SIMULATED_ON = "large matmul"


@dataclass(frozen=True, slots=True)
class Line:
    case: str
    truth: Truth
    report: Report
    grade: Grade

    def __str__(self) -> str:
        verdict = next((one for one in self.report.verdicts if one.phase is Phase.DECODE), None)
        says = shares = "-"
        if verdict is not None:
            says = f"{verdict.limit.value}, {verdict.saturation.value}".replace("_", " ")
            shares = ", ".join(
                f"{one.limit.value} {one.share.point:.0%}"
                for one in verdict.limits
                if one.share.point >= SHOWN_SHARE
            )
        why = f"  ({self.grade.why})" if self.grade.why else ""
        return (
            f"{self.case:<27} {self.truth.words:<32} {says:<25} {shares:<34} "
            f"{self.grade.outcome.value}{why}"
        )


def main() -> None:
    arguments = _arguments()
    print(f"{'case':<27} {'true':<32} {'verdict':<25} {'shares':<34} outcome", flush=True)
    begin_s = time.perf_counter()
    lines: list[Line] = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        print(f"seed {seed}")
        for line in _lines(arguments, seed):
            print(line, flush=True)
            lines.append(line)
    sys.exit(_summary(lines, time.perf_counter() - begin_s))


def _lines(arguments: argparse.Namespace, seed: int) -> Iterator[Line]:
    bench = Bench.open(arguments.device, seed)
    for name, make in CASES.items():
        if arguments.only not in name:
            continue
        try:
            case = make(bench)
        except NotHere as reason:
            print(f"{name:<27} not shown: {reason}")
            continue
        record = _measured(case.workload, bench, name, arguments.rounds)
        yield _judged(name, case.truth(), record)
        if name == _SIMULATED_ON:
            yield _judged("throttled clock", THROTTLED, throttled(record))
            yield _judged("foreign process", FOREIGN, with_foreign_process(record))
    if arguments.only in "KV budget too small":
        with tempfile.TemporaryDirectory() as folder:
            record = starved_record(Path(folder), random.Random(seed), device=arguments.device)
        yield _judged("KV budget too small", STARVED, record)


def _measured(workload: Workload, bench: Bench, name: str, rounds: int) -> RunRecord:
    config = RunConfig.model_validate({"model": name, "measure": {"rounds": rounds}})
    return measure(workload, config, device=bench.device, threads=bench.threads)


def _judged(case: str, truth: Truth, record: RunRecord) -> Line:
    report = build_report(record)
    return Line(case, truth, report, grade(truth, report))


def _summary(lines: list[Line], seconds: float) -> int:
    outcomes = Counter(line.grade.outcome for line in lines)
    total = sum(outcomes.values())
    if not total:
        print("no case has that in its name")
        return 2
    right, wrong = outcomes[Outcome.RIGHT], outcomes[Outcome.WRONG]
    unsure = outcomes[Outcome.INCONCLUSIVE]
    print(
        f"{right} of {total} right ({right / total:.0%}), {wrong} wrong, {unsure} inconclusive "
        f"({unsure / total:.0%}); {seconds:.0f} s"
    )
    return int(wrong > 0 or right < WANTED_RIGHT * total)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="", help="cases whose name holds these words")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
