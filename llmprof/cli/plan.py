"""`llmprof plan`: how many sequences of which length fit, before anything is loaded."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from llmprof import __version__, units
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.cli import options, streams
from llmprof.cli.quantities import part_bytes, rate_bytes_per_s, size_bytes, whole_numbers
from llmprof.devices.search import datasheet_named
from llmprof.errors import InputError
from llmprof.planning.plan import PlanRequest, make_plan
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.measurement import Source
from llmprof.schema.plan import Plan, PlanRates
from llmprof.schema.run import Tool
from llmprof.schema.settings import MAX_SEQUENCES, MAX_TOKENS, BatchingPolicy, RunConfig
from llmprof.store.settings_file import load_settings

_DEFAULT_RESERVE: Final = "10%"
_KEYS: Final = (
    "weights.source",
    "weights.dtype",
    "weights.quantization",
    "weights.group_size",
    "weights.symmetric",
    "kv_cache.dtype",
    "kv_cache.layout",
    "kv_cache.block_tokens",
    "attention.kind",
    "attention.backend",
    "batching.policy",
    "batching.max_step_tokens",
    "parallel.tensor",
)
_NO_KV_BUDGET: Final = "kv_cache.memory_bytes=null"
_VERIFY_KEYS: Final = ("execution.threads", "workload.seed")


def plan(
    model: options.ModelOrConfig,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Memory of each device: 24GB, 80GiB; of the datasheet where --device-name is given.",
            show_default=False,
        ),
    ] = None,
    device_name: Annotated[
        str | None,
        typer.Option(
            "--device-name",
            metavar="NAME",
            help='A device of the datasheet table: "H100 SXM", L4, "RTX 4090".',
            show_default=False,
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            "--bandwidth",
            metavar="RATE",
            help="Read bandwidth of a device that no datasheet knows: 936GB/s.",
            show_default=False,
        ),
    ] = None,
    reserve: Annotated[
        str,
        typer.Option(
            "--reserve",
            metavar="SIZE|PERCENT",
            help="Kept back of each device for driver, libraries and fragmentation.",
        ),
    ] = _DEFAULT_RESERVE,
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="C",
            help="Tokens per sequence, prompt and output: 8192 or 8192,131072.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option(
            "--batch", "-b", metavar="B", help="Sequences: 16 or 1,16,64.", show_default=False
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            "--price-per-hour",
            metavar="PRICE",
            min=0,
            max=1e9,
            help="Of one device, in any currency: adds the cost of a million output tokens.",
            show_default=False,
        ),
    ] = None,
    sets: options.Sets = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Run the engine here: planned against allocated, and where it really runs out.",
        ),
    ] = False,
    vary: Annotated[
        str | None,
        typer.Option(
            "--vary",
            metavar="WHAT",
            help="What --verify raises: batch (the default) or context.",
            show_default=False,
        ),
    ] = None,
    device: options.Device = None,
    output: options.Outputs = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Plan a device's memory: what fits by context and by sequences, how fast it could decode at best.

    Reads configurations and file headers only; needs neither a device nor the weights, but for
    --verify. Speeds are predicted from the datasheet or --bandwidth, never measured.

    For example:

      llmprof plan llama-3.1-70b --device-name "H100 SXM" --set parallel.tensor=4 --context 131072

      llmprof plan llama-3.1-8b --memory 24GB --bandwidth 1008GB/s --set kv_cache.dtype=int8 -o plan.html

      llmprof plan smollm2-135m-instruct --memory 400MB --reserve 0 --context 512 --verify
    """
    config = load_settings(model, {"device": device}, sets or [])
    if not verify:
        _refuse_idle({"--vary": vary, "--device": device})
    _refuse_other_keys(sets or [], (*_KEYS, *_VERIFY_KEYS) if verify else _KEYS)
    _refuse_kv_budget(config)
    request = _request(
        config, memory, device_name, bandwidth, reserve, price_per_hour, (context, batch)
    )
    outputs = [Path(path) for path in output or []]
    _check_outputs(outputs, force=force)
    source = resolve_model(config.model, weights=config.weights.source)
    tool = Tool(version=__version__, argv=("llmprof", *sys.argv[1:]))
    if verify:
        document = _verified(source, config, request, tool, vary or "batch", quiet=quiet)
    else:
        document = make_plan(source, config, request, tool=tool)
    _tell(document, outputs, json=json)


def _refuse_other_keys(sets: Sequence[str], known: Sequence[str]) -> None:
    """A key that changes nothing here must not look as if it did."""
    for text in sets:
        key = text.partition("=")[0]
        if key not in known and text != _NO_KV_BUDGET:
            raise InputError(
                f"--set {text}: plan does not use {key}",
                remedy=f"It takes {', '.join(known)}; sizes are --memory, --context and --batch",
            )


def _refuse_kv_budget(config: RunConfig) -> None:
    """Of a settings file that is also run: here the cache has all the room that is left."""
    budget = config.kv_cache.memory_bytes
    if budget is not None:
        raise InputError(
            f"kv_cache.memory_bytes is {units.byte_count(budget)}, and a plan gives the cache all that "
            "reserve, weights and activations leave of the device",
            remedy=f"Add --set {_NO_KV_BUDGET}, and keep back what is not for the cache by --reserve",
        )


def _refuse_idle(options_given: Mapping[str, str | None]) -> None:
    """Options of --verify alone."""
    for option, value in options_given.items():
        if value is not None:
            raise InputError(
                f"{option} {value[:40]} is about --verify: a plan on paper has nothing to run",
                remedy="Add --verify, or leave it out",
            )


def _request(
    config: RunConfig,
    memory: str | None,
    device_name: str | None,
    bandwidth: str | None,
    reserve: str,
    price_per_hour: float | None,
    numbers: tuple[list[str] | None, list[str] | None],
) -> PlanRequest:
    sheet = datasheet_named(device_name) if device_name else None
    stated = sheet.memory_bytes if sheet else None
    device_bytes = size_bytes("--memory", memory) if memory else stated
    if device_bytes is None:
        where = (
            f"the datasheet of {sheet.name} states no memory" if sheet else "a plan needs a size"
        )
        raise InputError(where, remedy='Give --memory 24GB or --device-name "H100 SXM"')
    rates = _rates(sheet, bandwidth)
    if price_per_hour is not None and rates is None:
        raise InputError(
            "--price-per-hour needs a speed", remedy="Give --device-name or --bandwidth as well"
        )
    contexts, batches = numbers
    return PlanRequest(
        device_bytes=device_bytes,
        device_source=Source.ASSUMED if memory else Source.DATASHEET,
        reserve_bytes=part_bytes("--reserve", reserve, device_bytes),
        rates=rates,
        price_per_hour=price_per_hour,
        contexts=whole_numbers("--context", contexts, MAX_TOKENS),
        batches=whole_numbers("--batch", batches, MAX_SEQUENCES),
        policy=_policy(config),
    )


def _policy(config: RunConfig) -> BatchingPolicy:
    """Servers compute long prompts in pieces: so does a plan that is not told otherwise."""
    told = "policy" in config.batching.model_fields_set
    return config.batching.policy if told else BatchingPolicy.CONTINUOUS


def _rates(sheet: Datasheet | None, bandwidth: str | None) -> PlanRates | None:
    """The user's bandwidth overrules the datasheet's; arithmetic stays the datasheet's."""
    given = rate_bytes_per_s("--bandwidth", bandwidth) if bandwidth else None
    stated = sheet.memory_bytes_per_s if sheet else None
    read = given or stated
    if read is None:
        return None
    return PlanRates(
        name=sheet.name if sheet else "a device of the given bandwidth",
        read_bytes_per_s=read,
        flops_per_s=sheet.flops_per_s if sheet else {},
        source=Source.ASSUMED if given else Source.DATASHEET,
        document=f"{sheet.document}, {sheet.document_date}" if sheet and not given else None,
    )


def _check_outputs(outputs: Sequence[Path], *, force: bool) -> None:
    from llmprof.renderers.plan_formats import check_plan_suffix
    from llmprof.store.outputs import check_writable

    for path in outputs:
        check_plan_suffix(path.suffix)
        check_writable(path, force=force)


def _verified(
    source: ModelSource,
    config: RunConfig,
    request: PlanRequest,
    tool: Tool,
    vary: str,
    *,
    quiet: bool,
) -> Plan:
    from llmprof.experiments.plan_verification import verified_plan

    with streams.progress_on_stderr(quiet=quiet) as progress:
        return verified_plan(source, config, request, tool=tool, vary=vary, progress=progress)


def _tell(document: Plan, outputs: Sequence[Path], *, json: bool) -> None:
    from llmprof.renderers.plan_formats import render_plan
    from llmprof.renderers.plan_text import print_plan
    from llmprof.store.outputs import write_atomic

    for path in outputs:
        write_atomic(path, render_plan(document, path.suffix))
    if json:
        streams.print_json(document)
    else:
        print_plan(document, streams.result_console(), written=[str(path) for path in outputs])
