"""What a gate writes for people and for CI."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmprof.cli import streams
from llmprof.errors import InputError, LlmprofError

if TYPE_CHECKING:
    from llmprof.schema.gate_result import GateResult

Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the result; the suffix picks the format (.html .md .json .csv .xml).",
        show_default=False,
    ),
]


def _file(name: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, metavar="FILE", help=text, show_default=False
    )
    return option


Junit = Annotated[Path | None, _file("--junit", "JUnit XML.")]
Summary = Annotated[Path | None, _file("--summary", "Append Markdown, as to $GITHUB_STEP_SUMMARY.")]
CodeQuality = Annotated[Path | None, _file("--code-quality", "GitLab Code Quality report.")]
Benchmark = Annotated[
    Path | None, _file("--github-benchmark", "github-action-benchmark, customSmallerIsBetter.")
]
BenchmarkBigger = Annotated[
    Path | None,
    _file("--github-benchmark-bigger", "github-action-benchmark, customBiggerIsBetter."),
]
Bencher = Annotated[Path | None, _file("--bencher", "Bencher Metric Format.")]
Ci = Annotated[
    bool,
    typer.Option(
        "--ci/--no-ci",
        help="In GitHub Actions: annotations, and the step summary without --summary.",
    ),
]


@dataclass(frozen=True, slots=True)
class GateOutputs:
    """Where the result goes, as the command line says."""

    files: list[Path]
    junit: Path | None
    summary: Path | None
    code_quality: Path | None
    benchmark: Path | None
    benchmark_bigger: Path | None
    bencher: Path | None
    ci: bool
    json: bool

    def check(self, *, force: bool) -> None:
        """Find an unwritable file or an unknown format before anything is measured."""
        from llmprof.renderers.gate_documents import check_gate_suffix
        from llmprof.store.outputs import check_distinct, check_writable

        for path in self.files:
            check_gate_suffix(path.suffix)
        for path in [*self.files, *self._named()]:
            check_writable(path, force=force)
        if self.summary is not None:
            check_writable(self.summary, force=True)  # it is appended to
        summary = [] if self.summary is None else [self.summary]
        check_distinct([*self.files, *self._named(), *summary])

    def _named(self) -> list[Path]:
        named = (self.junit, self.code_quality, self.benchmark, self.benchmark_bigger, self.bencher)
        return [path for path in named if path is not None]

    @contextmanager
    def errors_told(self) -> Iterator[None]:
        """A gate that fails before it has a result must not be missing in CI."""
        try:
            yield
        except LlmprofError as error:
            if self.junit is not None:
                from llmprof.renderers.junit import render_junit_error
                from llmprof.store.outputs import write_atomic

                with suppress(InputError):
                    write_atomic(self.junit, render_junit_error(error))
            raise

    def write(self, result: "GateResult") -> None:
        """Every file, then the result on stdout and the annotations beside it."""
        from llmprof.store.outputs import write_atomic

        for path, data in self._rendered(result):
            write_atomic(path, data)
        self._append_summary(result)
        if self.json:
            streams.print_json(result)
        else:
            from llmprof.renderers.gate_text import render_gate

            render_gate(result, streams.result_console())
        self._annotate(result)

    def _rendered(self, result: "GateResult") -> Iterator[tuple[Path, bytes]]:
        from llmprof.renderers.ci_json import render_bencher, render_code_quality
        from llmprof.renderers.gate_documents import render_gate_file
        from llmprof.renderers.github import render_benchmark
        from llmprof.renderers.junit import render_junit
        from llmprof.schema.metric import Better

        for path in self.files:
            yield path, render_gate_file(result, path.suffix)
        if self.junit is not None:
            yield self.junit, render_junit(result)
        if self.code_quality is not None:
            yield self.code_quality, render_code_quality(result)
        if self.benchmark is not None:
            yield self.benchmark, render_benchmark(result, Better.LOWER)
        if self.benchmark_bigger is not None:
            yield self.benchmark_bigger, render_benchmark(result, Better.HIGHER)
        if self.bencher is not None:
            yield self.bencher, render_bencher(result)

    def _append_summary(self, result: "GateResult") -> None:
        from llmprof.renderers.github import render_summary

        own = os.environ.get("GITHUB_STEP_SUMMARY") if self._in_github() else None
        path = self.summary or (Path(own) if own else None)
        if path is None:
            return
        try:
            with path.open("ab") as file:
                file.write(render_summary(result))
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error

    def _annotate(self, result: "GateResult") -> None:
        """GitHub reads both streams; stdout is the document's where that is JSON."""
        if not self._in_github():
            return
        from llmprof.renderers.github import render_annotations

        sys.stdout.flush()
        stream = sys.stderr if self.json else sys.stdout
        stream.write(render_annotations(result))

    def _in_github(self) -> bool:
        return self.ci and os.environ.get("GITHUB_ACTIONS") == "true"
