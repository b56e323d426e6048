"""`llmprof generate`: text from the engine, to see that it is a real one."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from llmprof.architectures.source import check_source
from llmprof.cli import options, streams
from llmprof.errors import InputError
from llmprof.schema.settings import MAX_SEED, MAX_TOKENS
from llmprof.store.settings_file import load_settings

_UNUSED: Final = ("batching", "workload", "measure", "gate")
"""Groups of settings that describe a measurement."""


def generate(
    model: options.ModelOrConfig,
    prompt: Annotated[
        str,
        typer.Option("--prompt", "-p", metavar="TEXT", help="Raw text, without a chat template."),
    ],
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens", "-n", metavar="N", min=1, max=MAX_TOKENS, help="Tokens to generate."
        ),
    ] = 64,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on after an end-of-sequence token.")
    ] = False,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="T", help="0 takes the most probable token.")
    ] = 0.0,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            metavar="K",
            min=1,
            max=MAX_TOKENS,
            help="Draw from the K most probable tokens.",
        ),
    ] = None,
    top_p: Annotated[
        float, typer.Option("--top-p", metavar="P", help="Draw from the most probable share P.")
    ] = 1.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, max=MAX_SEED, help="Of the draws.")
    ] = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    sets: options.Sets = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Continue a prompt with the engine that `llmprof run` measures.

    For example:

      llmprof generate smollm2-135m-instruct --prompt "The capital of France is"

      llmprof generate model.gguf --prompt Once --temperature 0.8 --top-p 0.9 --set weights.dtype=fp32
    """
    _refuse_no_text(prompt)
    _refuse_unused(sets or [])
    flags: dict[str, object] = {"device": device, "execution.threads": threads}
    given = {key: value for key, value in flags.items() if value is not None}
    config = load_settings(model, given, sets or [])
    check_source(config)

    from llmprof.engine.sampling import SamplingOptions
    from llmprof.engine.text import generate_text
    from llmprof.instruments.host_memory import host_memory
    from llmprof.instruments.snapshot import resolve_threads

    sampling = SamplingOptions(temperature, top_k, top_p, seed)
    with streams.progress_on_stderr(quiet=quiet) as progress:
        progress.note(f"loading {config.model}")
        generation = generate_text(
            config,
            prompt,
            sampling,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            threads=resolve_threads(config.execution.threads),
            host_available_bytes=host_memory().available_bytes,
        )
    if json:
        streams.print_json(generation)
    else:
        streams.result_console().print(generation.text, markup=False, soft_wrap=True)


def _refuse_no_text(prompt: str) -> None:
    """Python stands surrogates in for bytes of the command line that are no text."""
    if any("\ud800" <= char <= "\udfff" for char in prompt):
        raise InputError("--prompt holds bytes that are no UTF-8", remedy="Give it as UTF-8 text")


def _refuse_unused(sets: Sequence[str]) -> None:
    """A key that changes nothing here must not look as if it did."""
    for text in sets:
        if text.partition("=")[0].partition(".")[0] in _UNUSED:
            raise InputError(
                f"--set {text}: generate measures nothing and does not use it",
                remedy="Lengths come from --prompt and --max-tokens",
            )
