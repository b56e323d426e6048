"""`llmprof inspect`: the model on paper."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from llmprof.architectures.source import resolve_model
from llmprof.cli import options, streams
from llmprof.errors import CapabilityError, InputError
from llmprof.planning.inspection import inspect_model
from llmprof.renderers.inspection_text import render_inspection
from llmprof.schema.settings import MAX_SEQUENCES, MAX_TOKENS, KvLayout, Quantization, RunConfig
from llmprof.store.settings_file import load_settings

_KEYS: Final = (
    "weights.source",
    "weights.dtype",
    "kv_cache.dtype",
    "attention.kind",
    "parallel.tensor",
)


def inspect(
    model: options.ModelOrConfig,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-tokens",
            metavar="T",
            min=1,
            max=MAX_TOKENS,
            help="Tokens of the prefill; 512 by default.",
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            metavar="C",
            min=0,
            max=MAX_TOKENS,
            help="Tokens in the cache before the decode step; 512 by default.",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            "-b",
            metavar="B",
            min=1,
            max=MAX_SEQUENCES,
            help="Sequences at once; 1 by default.",
        ),
    ] = None,
    sets: options.Sets = None,
    json: options.Json = False,
) -> None:
    """Show parameters, bytes, KV cache per token, and FLOPs and bytes of prefill and decode.

    Reads configurations and file headers only; needs neither a device nor the weights.

    For example:

      llmprof inspect smollm2-135m-instruct

      llmprof inspect llama-3.1-8b --context 32768 --batch 16 --set kv_cache.dtype=fp8

      llmprof inspect deepseek-v3 --context 131072 --set parallel.tensor=8
    """
    settings = load_settings(model, {}, sets or [])
    _refuse_other_keys(sets or [])
    _refuse_other_switches(settings)
    source = resolve_model(settings.model, weights=settings.weights.source)
    inspection = inspect_model(
        source,
        prompt_tokens=prompt_tokens or settings.workload.prompt_tokens,
        context_tokens=settings.workload.prompt_tokens if context is None else context,
        batch=batch or settings.workload.batch,
        kv_dtype=settings.kv_cache.dtype,
        weight_dtype=settings.weights.dtype,
        attention=settings.attention.kind,
        tensor_parallel=settings.parallel.tensor,
    )
    if json:
        streams.print_json(inspection)
    else:
        render_inspection(inspection, streams.result_console())


def _refuse_other_keys(sets: Sequence[str]) -> None:
    """A key that changes nothing here must not look as if it did."""
    for text in sets:
        key = text.partition("=")[0]
        if key not in _KEYS:
            raise InputError(
                f"--set {text}: inspect does not use {key}",
                remedy=f"It takes {', '.join(_KEYS)}; lengths are --prompt-tokens, --context and --batch",
            )


def _refuse_other_switches(settings: RunConfig) -> None:
    """Settings of a file that would change the costs, and that are not worked out on paper yet."""
    if settings.weights.quantization is not Quantization.NONE:
        value = f"weights.quantization: {settings.weights.quantization.value}"
    elif settings.kv_cache.layout is KvLayout.NONE:
        value = "kv_cache.layout: none"
    else:
        return
    raise CapabilityError(f"inspect cannot work out {value}", remedy="Leave it out for inspect")
