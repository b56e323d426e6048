"""`llmprof quality`: what each weight format costs in accuracy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from llmprof.architectures.source import check_source
from llmprof.cli import options, streams
from llmprof.errors import InputError
from llmprof.store.settings_file import load_settings

if TYPE_CHECKING:
    from llmprof.experiments.quality import Text

_GROUPS: Final = ("weights", "kv_cache", "attention", "execution")


def quality(
    model: options.ModelOrConfig,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", metavar="FILE", help="Another text, in UTF-8; its first 1,024 tokens."
        ),
    ] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    sets: options.Sets = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare weight formats with fp32 on a text: perplexity, top-1 agreement, divergence.

    Every format is run with the kernels that decode steps use. Name one with weights.quantization
    and weights.group_size; otherwise fp8, int8 and int4 are tried in their usual groups.

    For example:

      llmprof quality smollm2-135m-instruct

      llmprof quality model.gguf --set weights.quantization=int4 --set weights.group_size=128 --json
    """
    _refuse_unused(sets or [])
    flags: dict[str, object] = {"device": device, "execution.threads": threads}
    given = {key: value for key, value in flags.items() if value is not None}
    config = load_settings(model, given, sets or [])
    check_source(config)

    from llmprof.experiments.quality import fixed_text, measure_quality
    from llmprof.instruments.host_memory import host_memory
    from llmprof.instruments.snapshot import resolve_threads
    from llmprof.renderers.quality_text import render_quality

    content = fixed_text() if text is None else _read(text)
    with streams.progress_on_stderr(quiet=quiet) as progress:
        progress.note(f"loading {config.model}")
        document = measure_quality(
            config,
            content,
            threads=resolve_threads(config.execution.threads),
            host_available_bytes=host_memory().available_bytes,
            progress=progress,
        )
    if json:
        streams.print_json(document)
    else:
        render_quality(document, streams.result_console())


def _read(path: Path) -> "Text":
    from llmprof.experiments.quality import Text

    try:
        return Text(path.name, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {error.reason}") from error


def _refuse_unused(sets: Sequence[str]) -> None:
    """A key that changes nothing here must not look as if it did."""
    for text in sets:
        if text.partition("=")[0].partition(".")[0] not in _GROUPS:
            raise InputError(
                f"--set {text}: quality does not use it",
                remedy=f"It takes keys of {', '.join(_GROUPS)}",
            )
