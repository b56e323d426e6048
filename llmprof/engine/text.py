"""A prompt in, its continuation out: tokenizer and engine put together."""

from llmprof.architectures.source import require_weights, resolve_model
from llmprof.engine.capabilities import check_prompt
from llmprof.engine.device import resolve_device
from llmprof.engine.engine import Engine
from llmprof.engine.sampling import SamplingOptions, make_sampler
from llmprof.engine.tokenizer_source import load_tokenizer
from llmprof.schema.generation import Generation
from llmprof.schema.settings import RunConfig, WorkloadSettings


def generate_text(
    config: RunConfig,
    prompt: str,
    sampling: SamplingOptions,
    *,
    max_tokens: int,
    ignore_eos: bool,
    threads: int,
    host_available_bytes: int,
) -> Generation:
    """Load a model and continue one raw prompt by at most `max_tokens` tokens.

    The stop token that ends a text is among `output_ids` and not in `text`.

    Raises:
        InputError: no model, tokenizer or weights; an empty or too long prompt.
        CapabilityError: a switch that the engine does not have, or a model that does not fit.
        MeasurementFailedError: memory ran out.
    """
    device = resolve_device(config.device)
    source = resolve_model(config.model, weights=config.weights.source)
    require_weights(source, config.weights)
    tokenizer = load_tokenizer(source)
    prompt_ids = tokenizer.encode(prompt)
    check_prompt(source.config, prompt_ids)
    workload = WorkloadSettings(prompt_tokens=len(prompt_ids), output_tokens=max_tokens)
    engine = Engine.load(
        source,
        config.model_copy(update={"workload": workload}),
        device=device,
        threads=threads,
        host_available_bytes=host_available_bytes,
    )
    generated = engine.generate(
        prompt_ids,
        make_sampler(sampling, device),
        max_tokens=max_tokens,
        stop_ids=() if ignore_eos else tokenizer.eos_ids,
    )
    stopped_by_token = generated.stopped == "eos"
    return Generation(
        model=source.name,
        prompt_ids=tuple(prompt_ids),
        output_ids=generated.ids,
        text=tokenizer.decode(generated.ids[:-1] if stopped_by_token else generated.ids),
        stopped=generated.stopped,
        random_weights=engine.random_weights,
    )
