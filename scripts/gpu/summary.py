"""What comes back: one archive of run files, predictions, logs, a summary and a report."""

import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from llmprof.renderers.html_page import render_html
from scripts.gpu.figures import Figure, Found, figures, report_of
from scripts.gpu.job import read_found, write_whole
from scripts.gpu.predictions import predicted_cells
from scripts.gpu.schedule import Outcome

ARCHIVE: Final = "gpu-check.tar.gz"
_SHOWN: Final = ("summary.md", "summary.json", "report.html")
_LONGEST_WORDS: Final = 160


def write_summary(folder: Path, about: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    """Write summary.md, summary.json and report.html; the text of the summary."""
    found = read_found(folder)
    shown = figures(found)
    if about["dry_run"]:
        shown = tuple(replace(one, met=None, words="a dry run on a CPU") for one in shown)
    document = {
        **about,
        "parts": [asdict(one) for one in outcomes],
        "figures": [{**asdict(one), "status": one.status} for one in shown],
        "found": {name: told for name, told in found.items() if name != "ceilings"},
    }
    write_whole(folder / "summary.json", json.dumps(document, indent=1) + "\n")
    text = "\n".join(_lines(about, outcomes, shown, found)) + "\n"
    write_whole(folder / "summary.md", text)
    report = report_of(found, "base")
    if not isinstance(report, str) and not (folder / "report.html").exists():
        write_whole(folder / "report.html", render_html(report).decode())
    return text


def device_name(found: Found) -> str | None:
    """As the ceilings tell it; None before they were measured."""
    name = found.get("ceilings", {}).get("environment", {}).get("device_name")
    return None if name is None else str(name)


def archive(folder: Path, results: Path) -> Path:
    """Everything but carried packages and caches, in one file; the summary and the report beside it.

    Four files in `results`, each of which is there as a whole whenever this is ended.
    """
    results.mkdir(parents=True, exist_ok=True)
    path = results / ARCHIVE
    beside = path.with_name(f".{ARCHIVE}.new")
    with tarfile.open(beside, "w:gz") as tar:
        for name in (*_SHOWN, "found", "runs", "predictions", "logs"):
            if (folder / name).exists():
                tar.add(folder / name, name)
        for file in sorted(folder.glob("ncu*.*")):
            tar.add(file, file.name)
    beside.replace(path)
    for name in _SHOWN:
        if results != folder and (folder / name).exists():
            write_whole(results / name, (folder / name).read_text())
    return path


def _lines(
    about: dict[str, Any], outcomes: Sequence[Outcome], shown: Sequence[Figure], found: Found
) -> Iterator[str]:
    yield f"# GPU check of llmprof {about['version']}"
    yield ""
    yield f"{about['device']}, torch {about['torch']}, model {about['model']} with random weights."
    if about["device"] == "cpu":
        yield "A dry run on a CPU: no figure here says anything about a GPU."
    yield ""
    yield "| figure | bound | value | |"
    yield "| --- | --- | --- | --- |"
    for one in shown:
        value = "" if one.value is None else f"{one.value:.1%}"
        words = one.words[:_LONGEST_WORDS].replace("|", "/")
        yield f"| {one.name} | {one.bound} | {value} | **{one.status}** {words} |"
    if "tilings" in found:
        yield from ("", tilings_line(found["tilings"]))
    yield from _cells(found)
    yield from ("", "## Parts", "")
    for outcome in outcomes:
        words = f": {outcome.words}" if outcome.status != "done" else ""
        yield f"- {outcome.name}: {outcome.status}, {outcome.seconds:.0f} s{words}"


def tilings_line(told: dict[str, Any]) -> str:
    """Of each format the fastest tiling of one row, and what the one in use reaches of it."""
    words = []
    for name, rates in told.items():
        if name != "in_use" and told["in_use"] in rates:
            best = max(rates, key=lambda one: rates[one])
            share = rates[told["in_use"]] / rates[best]
            words.append(
                f"{name} {best} at {rates[best] / 1e12:.2f} TB/s (in use: {share:.0%} of it)"
            )
    return f"Tilings of one row, the fastest of each format: {'; '.join(words) or 'none measured'}."


def _cells(found: Found) -> Iterator[str]:
    measured = {one.name: one for one in predicted_cells(found)}
    yield from ("", "## Cells", "")
    yield "| cell | phase | step | predicted | |"
    yield "| --- | --- | --- | --- | --- |"
    for key in found:
        if not key.startswith("cell-"):
            continue
        name = key.removeprefix("cell-")
        report = report_of(found, name)
        if isinstance(report, str):
            yield f"| {name} | | | | not measured: {report[:_LONGEST_WORDS]} |"
            continue
        for phase, verdict in zip(report.phases, report.verdicts, strict=False):
            forecast = measured.get(f"{name}, {phase.phase.value}")
            step = f"{phase.step_s.point * 1e3:.3f} ms"
            told = f"{forecast.predicted_s * 1e3:.3f} ms" if forecast else ""
            yield f"| {name} | {phase.phase.value} | {step} | {told} | {verdict.sentence} |"
