"""Render every page of a folder of reports again from its documents, and write their index.

Each `NAME.run.json`, `NAME.sweep.json`, `NAME.compare.json`, `NAME.gate.json` and `NAME.plan.json`
becomes `NAME.html`;
a run that README shows a picture of becomes `NAME-roofline.png` too, where that file is there already.
`questions.yaml` says what each of them answers.

    python scripts/render_reports.py [FOLDER]
"""

import shlex
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from llmprof.errors import InputError, LlmprofError
from llmprof.renderers.markdown import code, escaped
from llmprof.store.documents import read_document
from llmprof.store.outputs import write_atomic

if TYPE_CHECKING:
    from llmprof.schema.comparison import Comparison

QUESTIONS = "questions.yaml"


class Shown(NamedTuple):
    """What a document became: the page, and its line in the index."""

    page: bytes
    headline: str
    on: str
    command: str
    picture: bytes | None = None
    how: str = "measured"


def _run(path: Path, question: str) -> Shown:
    from llmprof.analysis.report import build_report
    from llmprof.renderers.html_page import render_html
    from llmprof.renderers.roofline_figure import roofline_figure
    from llmprof.store.runs import find_run

    report = build_report(find_run(str(path)))
    environment = report.run.environment
    return Shown(
        page=render_html(report, question=question),
        headline=report.headline,
        on=f"{environment.device_name}, torch {environment.versions.get('torch', 'not known')}",
        command=shlex.join(report.run.tool.argv),
        picture=roofline_figure(report, "png"),
    )


def _sweep(path: Path, question: str) -> Shown:
    from llmprof.renderers.sweep_page import sweep_page
    from llmprof.renderers.sweep_words import headline
    from llmprof.schema.sweep import Sweep

    sweep, _ = read_document(path, Sweep)
    return Shown(
        page=sweep_page(sweep, question=question),
        headline=headline(sweep),
        on=sweep.device_name,
        command=shlex.join(sweep.tool.argv),
    )


def _comparison(path: Path, question: str) -> Shown:
    from llmprof.renderers.comparison_documents import comparison_html
    from llmprof.schema.comparison import Comparison

    comparison, _ = read_document(path, Comparison)
    return Shown(
        page=comparison_html(comparison, question=question),
        headline=comparison.headline,
        on=comparison.candidate.device,
        command=shlex.join(["llmprof", "compare", *_compared(comparison)]),
    )


def _compared(comparison: "Comparison") -> list[str]:
    """What was named: two saved runs, or a model and what was set differently in its two arms."""
    if comparison.live is None:
        return [comparison.baseline.run_ids[0], comparison.candidate.run_ids[0]]
    arms = ("--base", "baseline"), ("--cand", "candidate")
    changes = [
        (option, ",".join(f"{one.key}={getattr(one, side)}" for one in comparison.settings))
        for option, side in arms
    ]
    return [comparison.baseline.model, *(word for change in changes for word in change)]


def _gate(path: Path, question: str) -> Shown:
    from llmprof.renderers.gate_documents import gate_html
    from llmprof.renderers.gate_tables import headline
    from llmprof.schema.gate_result import GateResult

    result, _ = read_document(path, GateResult)
    return Shown(
        page=gate_html(result, question=question),
        headline=f"{headline(result)}.",
        on=result.device,
        command=shlex.join(result.tool.argv),
    )


def _plan(path: Path, question: str) -> Shown:
    from llmprof.renderers.plan_page import plan_page
    from llmprof.renderers.plan_words import headline, title
    from llmprof.schema.plan import Plan

    plan, _ = read_document(path, Plan)
    return Shown(
        page=plan_page(plan, question=question),
        headline=headline(plan),
        on=f"paper ({title(plan)})" if plan.verification is None else title(plan),
        command=shlex.join(plan.tool.argv),
        how="planned" if plan.verification is None else "planned and checked",
    )


def _prediction(path: Path, question: str) -> Shown:
    from llmprof.renderers.prediction_documents import prediction_html
    from llmprof.renderers.prediction_words import headline
    from llmprof.schema.prediction import Prediction

    prediction, _ = read_document(path, Prediction)
    return Shown(
        page=prediction_html(prediction, question=question),
        headline=headline(prediction),
        on=prediction.device,
        command=shlex.join(prediction.argv) or "llmprof predict",
        how="predicted",
    )


KINDS: dict[str, Callable[[Path, str], Shown]] = {
    ".run.json": _run,
    ".sweep.json": _sweep,
    ".compare.json": _comparison,
    ".gate.json": _gate,
    ".plan.json": _plan,
    ".predict.json": _prediction,
}


def render_folder(folder: Path) -> tuple[Path, ...]:
    """Write all pages and the index; equal documents give equal bytes.

    Raises:
        InputError: a document without a question, a question without a document, or one that
            cannot be read.
    """
    documents = _documents(folder)
    questions = _questions(folder, documents)
    written, lines = [], []
    for name in questions:
        path, show = documents[name]
        shown = show(path, questions[name])
        written.append(_write(folder / f"{name}.html", shown.page))
        picture = folder / f"{name}-roofline.png"
        if shown.picture and picture.exists():
            written.append(_write(picture, shown.picture))
        lines += _entry(name, path, questions[name], shown)
    written.append(_write(folder / "README.md", "\n".join([*_TOP, *lines, *_END]).encode()))
    return tuple(written)


def _documents(folder: Path) -> dict[str, tuple[Path, Callable[[Path, str], Shown]]]:
    found: dict[str, tuple[Path, Callable[[Path, str], Shown]]] = {}
    for suffix, show in KINDS.items():
        for path in sorted(folder.glob(f"*{suffix}")):
            name = path.name.removesuffix(suffix)
            if name in found:
                raise InputError(
                    f"{found[name][0].name} and {path.name} would both become {name}.html",
                    remedy="Give one of them another name",
                )
            found[name] = (path, show)
    return found


def _questions(folder: Path, documents: Collection[str]) -> dict[str, str]:
    """In the order of the file: that is the order of the index."""
    file = folder / QUESTIONS
    if not file.is_file():
        raise InputError(
            f"{file} does not exist", remedy="Write one line per document: name: question"
        )
    tree = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    if not isinstance(tree, dict) or not all(isinstance(text, str) for text in tree.values()):
        raise InputError(f"{file}: expected one line per document, name: question")
    for name in sorted(set(documents) ^ set(tree)):
        missing = "has no question" if name in documents else "has a question and no document"
        raise InputError(f"{file}: {name} {missing}", remedy="Add the one or drop the other")
    return {str(name): text for name, text in tree.items()}


def _write(path: Path, data: bytes) -> Path:
    write_atomic(path, data)
    return path


_TOP = (
    "# Reports, each with the question that it answers",
    "",
    "Every page is rendered from the document beside it, without a device, by `make reports`; plans and "
    "predictions were made on paper, all others were measured.",
)
_END = ("",)


def _entry(name: str, path: Path, question: str, shown: Shown) -> list[str]:
    return [
        "",
        f"## {escaped(question)}",
        "",
        f"{escaped(shown.headline)}",
        "",
        f"[{name}.html]({name}.html), from [{path.name}]({path.name}), {shown.how} on "
        f"{escaped(shown.on)} by {code(shown.command)}",
    ]


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "reports")
    try:
        for path in render_folder(folder):
            sys.stdout.write(f"{path} {path.stat().st_size:,} bytes\n")
    except LlmprofError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
