"""Arguments and options that several commands share, so that they read and mean the same."""

import re
from pathlib import Path
from typing import Annotated

import typer

from llmprof.errors import InputError
from llmprof.schema.settings import DEVICE_PATTERN, MAX_THREADS

ModelOrConfig = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|CONFIG",
        help="GGUF file, Hugging Face folder, config.json, hub id or preset; or a settings file (.yaml).",
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="GGUF file, Hugging Face folder, config.json, hub id or preset.",
        show_default=False,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one key, for example weights.dtype=bf16; repeatable, overrules file and flags.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N.", show_default=False
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=MAX_THREADS,
        help="CPU threads; all usable cores by default.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write a report; the suffix picks the format (.html .md .json .csv .png .svg .pdf; "
        ".trace.json for Perfetto, .ops.csv for the table of ops).",
        show_default=False,
    ),
]
Ops = Annotated[
    bool,
    typer.Option("--ops", help="Show the ops of each phase, by the time that each could save."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]


def checked_device(device: str, *, option: str) -> str:
    """The device as it was given.

    Raises:
        InputError: it names none.
    """
    if not re.fullmatch(DEVICE_PATTERN, device):
        raise InputError(
            f"{option} is '{device[:60]}'", remedy="Expected auto, cpu, cuda or cuda:N"
        )
    return device
