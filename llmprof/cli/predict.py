"""`llmprof predict`: what other settings or another device would give, before anything is measured."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmprof.cli import options, streams
from llmprof.cli.quantities import size_bytes
from llmprof.devices.search import datasheet_named
from llmprof.errors import InputError
from llmprof.store.settings_file import changed_settings, is_settings_file, load_settings

if TYPE_CHECKING:
    from llmprof.architectures.source import ModelSource
    from llmprof.schema.ceilings import Ceilings
    from llmprof.schema.prediction import Prediction
    from llmprof.schema.run import RunRecord
    from llmprof.schema.settings import RunConfig


Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the prediction; the suffix picks the format (.html .md .json .png .svg .pdf).",
        show_default=False,
    ),
]


def predict(
    base: Annotated[
        str,
        typer.Argument(
            metavar="RUN|MODEL|CONFIG",
            help="A saved run (@last, id or file), or a model or settings file that was never run.",
            show_default=False,
        ),
    ],
    sets: options.Sets = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="DEVICE",
            help="Use the ceilings of this machine's cpu or cuda:N.",
            show_default=False,
        ),
    ] = None,
    device_ceilings: Annotated[
        Path | None,
        typer.Option(
            "--device-ceilings",
            metavar="FILE",
            help="Ceilings of another device: what `llmprof ceilings --json` printed there; - is stdin.",
            show_default=False,
        ),
    ] = None,
    device_name: Annotated[
        str | None,
        typer.Option(
            "--device-name",
            metavar="NAME",
            help='Of a model: a device of the datasheet table, "H100 SXM", L4, "RTX 4090".',
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Memory of that device where the datasheet's is not meant: 24GB, 80GiB.",
            show_default=False,
        ),
    ] = None,
    output: Outputs = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict prefill and decode under other settings, from a run or from ceilings alone.

    The ledger of the run is computed again with the bytes, FLOPs, ops and kernels of the target. Tier
    C has a measured roof of every kernel that changes, B has a run, A only ceilings and the model.
    `llmprof run MODEL --confirm KEY=VALUE` measures the changed kernels first, then the target.

    For example:

      llmprof predict @last --set weights.quantization=int4 -o int4.html

      llmprof predict @last --set workload.batch=16 --device-ceilings h100.json

      llmprof predict llama-3.1-8b --device-name "H100 SXM" --set workload.batch=16
    """
    outputs = [Path(path) for path in output or []]
    _check(outputs, force=force)
    _one_device(on, device_ceilings, device_name, memory)
    record = _as_run(base)
    if record is not None:
        if device_name is not None:
            raise InputError(
                f"--device-name needs a model, and '{base}' is a run: a datasheet knows nothing of "
                "its kernels",
                remedy=f"Predict from the model: llmprof predict {record.settings.model} "
                f'--device-name "{device_name}"; or give --device-ceilings FILE',
            )
        document = _from_run(record, sets or [], _ceilings(on, device_ceilings, quiet=quiet))
    else:
        document = _from_model(base, sets or [], on, device_ceilings, device_name, memory, quiet)
    document = document.model_copy(update={"argv": ("llmprof", *sys.argv[1:])})
    _tell(document, outputs, json=json)


def _check(outputs: Sequence[Path], *, force: bool) -> None:
    """Find a wrong format or an unwritable file before anything is worked out."""
    from llmprof.renderers.prediction_documents import check_prediction_suffix
    from llmprof.store.outputs import check_writable

    for path in outputs:
        check_prediction_suffix(path.suffix)
        check_writable(path, force=force)


def _one_device(on: str | None, file: Path | None, name: str | None, memory: str | None) -> None:
    given = {"--on": on, "--device-ceilings": file, "--device-name": name}
    told = [option for option, value in given.items() if value is not None]
    if len(told) > 1:
        raise InputError(f"{' and '.join(told)} name two devices", remedy="Give one of them")
    if memory is not None and name is None:
        raise InputError(
            "--memory is that of a device from the datasheet table", remedy="Add --device-name NAME"
        )


def _tell(document: "Prediction", outputs: Sequence[Path], *, json: bool) -> None:
    from llmprof.store.outputs import write_atomic

    for path in outputs:
        from llmprof.renderers.prediction_documents import render_prediction_file

        write_atomic(path, render_prediction_file(document, path.suffix))
    if json:
        streams.print_json(document)
    elif not outputs:
        from llmprof.renderers.prediction_text import render_prediction

        render_prediction(document, streams.result_console())


def _as_run(base: str) -> "RunRecord | None":
    """The run that is meant; None where it is a model or a settings file."""
    from llmprof.store.runs import find_run, find_run_file

    if base.startswith("@") or base == "-":
        return find_run(base)
    if is_settings_file(base):
        return None
    path = Path(base)
    if path.suffix.lower() == ".json":
        return _of_json(base)
    if path.exists():
        return None
    try:
        find_run_file(base)
    except InputError:
        return None
    return find_run(base)


def _of_json(base: str) -> "RunRecord | None":
    """A run file, or None for the config.json of a model.

    Raises:
        InputError: another document of llmprof, with what to do with it.
    """
    from llmprof.store.document_kinds import kind_of_file
    from llmprof.store.runs import find_run

    kind = kind_of_file(Path(base))
    return None if kind is None else find_run(base)


def _from_run(record: "RunRecord", sets: list[str], ceilings: "Ceilings | None") -> "Prediction":
    """Ceilings of the run's own device bring what is known about its kernels."""
    from llmprof.analysis.prediction import BaseRun, predict

    if ceilings and ceilings.environment.fingerprint == record.environment.fingerprint:
        record = record.model_copy(update={"ceilings": ceilings})
        ceilings = None
    settings = changed_settings(record.settings, sets)
    return predict(BaseRun.of(record), settings, ceilings=ceilings)


def _source(base: str, settings: "RunConfig") -> "ModelSource":
    """Found before a device is asked for: a misspelled name is no model without a device.

    Raises:
        InputError: no such run and no such model, with the nearest preset.
    """
    from llmprof.architectures.source import resolve_model
    from llmprof.schema.settings import WeightSource

    try:
        found = resolve_model(settings.model, weights=WeightSource.RANDOM)
        # the header that was read for the shape also says how the weights are stored
        return resolve_model(settings.model) if found.kind == "gguf" else found
    except InputError as error:
        if is_settings_file(base):
            raise
        raise InputError(f"no saved run, and {error.message}", remedy=error.remedy) from error


def _from_model(
    base: str,
    sets: Sequence[str],
    on: str | None,
    file: Path | None,
    name: str | None,
    memory: str | None,
    quiet: bool,
) -> "Prediction":
    from llmprof.analysis.paper_device import PaperDevice
    from llmprof.analysis.paper_forecast import paper_target, predict_on_paper

    settings = load_settings(base, {}, sets)
    source = _source(base, settings)
    if name is not None:
        sheet = datasheet_named(name)
        device = PaperDevice.of_datasheet(sheet, size_bytes("--memory", memory) if memory else None)
    else:
        ceilings = _ceilings(on, file, quiet=quiet)
        if ceilings is None:
            raise InputError(
                f"'{base}' is no saved run, and a model alone has no device",
                remedy='Add --device-name "H100 SXM", --on cpu (or cuda:N), or --device-ceilings FILE',
            )
        device = PaperDevice.of_ceilings(ceilings)
    stored = source.manifest
    target = paper_target(source.config, stored, settings, device)
    return predict_on_paper(target, device, stored=stored)


def _ceilings(on: str | None, file: Path | None, *, quiet: bool) -> "Ceilings | None":
    if file is not None:
        from llmprof.schema.ceilings import Ceilings
        from llmprof.store.documents import read_document

        document, _ = read_document(file, Ceilings)
        return document
    if on is None:
        return None
    from llmprof.ceilings.measure import cached_ceilings
    from llmprof.engine.device import resolve_device
    from llmprof.instruments.snapshot import resolve_threads, snapshot

    device = resolve_device(options.checked_device(on, option="--on"))
    environment = snapshot(device, resolve_threads(None))
    with streams.progress_on_stderr(quiet=quiet) as progress:
        return cached_ceilings(environment, device, progress=progress)
