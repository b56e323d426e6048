"""How much of a model is left in a weight format: likelihoods over a text, against fp32."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Final, Literal

import torch
from torch.nn import functional

from llmprof.architectures.source import ModelSource, require_weights, resolve_model
from llmprof.engine.capabilities import check_weights
from llmprof.engine.device import resolve_device
from llmprof.engine.dtypes import ComputeDtype, compute_dtype
from llmprof.engine.engine import Engine
from llmprof.engine.loading import LoadedWeights, load_weights
from llmprof.engine.probe import NullProbe
from llmprof.engine.tokenizer_source import load_tokenizer
from llmprof.errors import InputError
from llmprof.schema.measurement import Caveat
from llmprof.schema.quality import FormatQuality, Quality
from llmprof.schema.settings import (
    Quantization,
    RunConfig,
    WeightDtype,
    WeightsSettings,
    WorkloadSettings,
)
from llmprof.store.progress import NullProgress, Progress

ROWS_PER_STEP: Final = 2
"""The kernels are chosen by their rows: these are those of a decode step of one or two sequences."""
Origin = Literal["floats", "taken_over", "searched", "plain"]
MOST_TOKENS: Final = 1024
"""Of a longer text the beginning is taken: every position keeps a distribution in memory."""


@dataclass(frozen=True, slots=True)
class Text:
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class _Trial:
    """A weight format to try."""

    weights: WeightsSettings
    search: bool = True


def fixed_text() -> Text:
    """The text that comes with llmprof: English prose of about 600 tokens."""
    data = files("llmprof.experiments") / "data" / "quality_text.json"
    content = json.loads(data.read_text(encoding="utf-8"))
    return Text(content["title"], content["text"])


def measure_quality(
    config: RunConfig,
    text: Text,
    *,
    threads: int,
    host_available_bytes: int,
    rows_per_step: int = ROWS_PER_STEP,
    progress: Progress | None = None,
) -> Quality:
    """Run a text through the model in fp32 and in each weight format, with the kernels of decode.

    With `weights.quantization` set, only that format is tried beside the run's floats; otherwise
    fp8, int8, int8 in groups, int4 in groups of 32, 64 and 128, and int4 by plain rounding.

    Raises:
        InputError: no model, tokenizer or weights, or a text of fewer than two tokens.
        CapabilityError: a format that the device has no kernel for, or a model that does not fit.
        MeasurementFailedError: memory ran out.
    """
    progress = progress or NullProgress()
    device = resolve_device(config.device)
    source = resolve_model(config.model, weights=config.weights.source)
    require_weights(source, config.weights)
    trials = list(_trials(config.weights))
    for trial in trials:
        check_weights(trial.weights, device)
    ids = _tokens(source, text)
    progress.note("the reference in fp32")
    engine = Engine.load(
        source,
        _in_fp32(config, len(ids)),
        device=device,
        threads=threads,
        host_available_bytes=host_available_bytes,
    )
    expected = torch.cat(list(_log_probabilities(engine, ids, rows_per_step)))
    reference = _compared(engine, ids, expected, [expected], "floats")
    floats = compute_dtype(config.weights.dtype, source.manifest)
    kernels, formats = {}, []
    for number, trial in enumerate(trials):
        progress.update("formats", number, len(trials))
        tried, origin = _with_format(engine, source, trial, floats)
        projection = tried.decoder.layers[0].qkv
        kernels[projection.format.name] = projection.kernel_name(rows_per_step)
        found = _log_probabilities(tried, ids, rows_per_step)
        formats.append(_compared(tried, ids, expected, found, origin))
    progress.update("formats", len(trials), len(trials))
    return Quality(
        model=source.name,
        text=text.title,
        num_tokens=len(ids),
        rows_per_step=rows_per_step,
        reference=reference,
        kernels=kernels,
        formats=tuple(formats),
        caveats=_caveats(engine, floats),
    )


def _tokens(source: ModelSource, text: Text) -> torch.Tensor:
    """Ids [tokens] of the beginning of a text."""
    ids = load_tokenizer(source).encode(text.text)
    ids = ids[: min(MOST_TOKENS, source.config.max_position_embeddings)]
    if len(ids) < 2:
        raise InputError(
            f"the text '{text.title}' has {len(ids)} tokens: one must follow from another",
            remedy="Give a longer text",
        )
    return torch.tensor(ids)


def _in_fp32(config: RunConfig, num_tokens: int) -> RunConfig:
    """Room for the text, and weights that nothing is lost in."""
    return config.model_copy(
        update={
            "weights": WeightsSettings(source=config.weights.source, dtype=WeightDtype.FP32),
            "workload": WorkloadSettings(prompt_tokens=num_tokens - 1, output_tokens=1),
        }
    )


def _trials(weights: WeightsSettings) -> Iterator[_Trial]:
    def packed(quantization: Quantization, group_size: int | str) -> WeightsSettings:
        return weights.model_copy(update={"quantization": quantization, "group_size": group_size})

    yield _Trial(
        weights.model_copy(
            update={"quantization": Quantization.NONE, "group_size": None, "symmetric": False}
        )
    )
    if weights.quantization is not Quantization.NONE:
        yield _Trial(weights)
        return
    yield _Trial(packed(Quantization.FP8, "channel"))
    yield _Trial(packed(Quantization.INT8, 32))
    yield _Trial(packed(Quantization.INT8, "channel"))
    for group_size in (32, 64, 128):
        yield _Trial(packed(Quantization.INT4, group_size))
    yield _Trial(packed(Quantization.INT4, 128), search=False)


def _with_format(
    engine: Engine, source: ModelSource, trial: _Trial, floats: ComputeDtype
) -> tuple[Engine, Origin]:
    """The same engine with other weights; they were never all in memory twice."""
    loaded = load_weights(
        source,
        trial.weights,
        floats,
        attention=engine.decoder.attention,
        device=engine.device,
        search=trial.search,
    )
    changed = replace(engine, decoder=loaded.decoder, manifest=loaded.manifest, dtype=floats)
    return changed, _origin(loaded, trial)


def _origin(loaded: LoadedWeights, trial: _Trial) -> Origin:
    if trial.weights.quantization is Quantization.NONE:
        return "floats"
    if not loaded.rounded:
        return "taken_over"
    searched = trial.search and trial.weights.quantization is not Quantization.FP8
    return "searched" if searched else "plain"


@torch.inference_mode()
def _log_probabilities(
    engine: Engine, ids: torch.Tensor, rows_per_step: int
) -> Iterator[torch.Tensor]:
    """Of every token after each position: [rows, vocab_size] per step, in float32."""
    batch = engine.open_batch(ids.unsqueeze(0), output_tokens=0)
    probe = NullProbe()
    for end in range(rows_per_step, len(ids) + rows_per_step, rows_per_step):
        batch.num_tokens = min(end, len(ids))
        step = batch.next_step(all_logits=True)
        logits = engine.forward(step, batch.cache, batch.rotary, probe)
        batch.advance()
        yield functional.log_softmax(logits.float(), dim=-1)[-step.num_rows :].cpu()


def _compared(
    engine: Engine,
    ids: torch.Tensor,
    expected: torch.Tensor,
    found: Iterable[torch.Tensor],
    origin: Origin,
) -> FormatQuality:
    """One pass over the positions; `expected` is [tokens, vocab_size]."""
    position, agreed, divergence, likelihood = 0, 0, 0.0, 0.0
    for log_q in found:
        log_p = expected[position : position + len(log_q)]
        agreed += int((log_p.argmax(-1) == log_q.argmax(-1)).sum())
        divergence += float((log_p.exp() * (log_p - log_q)).sum(dtype=torch.float64))
        following = ids[position + 1 : position + 1 + len(log_q)]
        likelihood += float(
            log_q[: len(following)].gather(1, following.unsqueeze(1)).sum(dtype=torch.float64)
        )
        position += len(log_q)
    return FormatQuality(
        format=engine.decoder.layers[0].qkv.format.name,
        origin=origin,
        weight_bytes=engine.manifest.stored_bytes,
        perplexity=math.exp(-likelihood / (len(ids) - 1)),
        top1_agreement=agreed / len(ids),
        mean_kl_nats=divergence / len(ids),
    )


def _caveats(engine: Engine, floats: ComputeDtype) -> tuple[Caveat, ...]:
    caveats = []
    if engine.random_weights:
        caveats.append(
            Caveat(
                code="random-weights",
                message="The weights are random: the figures say nothing about a trained model",
            )
        )
    if floats.dequantized_from:
        caveats.append(
            Caveat(
                code="packed-file",
                message=f"The file's own weights are rounded already "
                f"({', '.join(floats.dequantized_from)}): the reference is what it stands for, and "
                "other formats round it a second time",
            )
        )
    return tuple(caveats)
