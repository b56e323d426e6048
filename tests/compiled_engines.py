"""Engines whose decode steps torch.compile makes, without a GPU, and what they compute."""

import dataclasses

import torch

from llmprof.engine.attention import FlashAttention, StandardAttention
from llmprof.engine.engine import Engine
from llmprof.engine.execution import StepRunner
from llmprof.engine.execution.compilations import Compilations
from llmprof.engine.execution.compiled_step import CompiledStep, StepCompiler
from llmprof.engine.execution.graph_step import context_bucket
from llmprof.engine.execution.replay_runner import ReplayRunner
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler

TOKENS = 10


def compiling(
    backend: str = "aot_eager", *, by_bucket: bool = False, buckets: tuple[int, ...] = ()
) -> ReplayRunner:
    compilations = Compilations(backend=backend)
    return ReplayRunner(
        "compiled",
        StepCompiler(compilations),
        context_bucket if by_bucket else lambda step: None,
        row_buckets=buckets,
        whole_tables=True,
        compilations=compilations,
    )


def running(
    engine: Engine,
    runner: StepRunner,
    attention: FlashAttention | StandardAttention | None = None,
) -> Engine:
    if attention is not None:
        decoder = dataclasses.replace(engine.decoder, attention=attention)
        engine = dataclasses.replace(engine, decoder=decoder)
    return dataclasses.replace(engine, runner=runner)


def logits_of(engine: Engine, rows: int = 2, tokens: int = TOKENS) -> torch.Tensor:
    """Of a prefill and some decode steps, each fed with the most probable token."""
    prompts = torch.randint(48, (rows, 9), generator=torch.Generator().manual_seed(5))
    batch = engine.open_batch(prompts, output_tokens=tokens)
    steps = []
    for _ in range(tokens):
        with torch.inference_mode():
            step = engine.forward(batch.next_step(), batch.cache, batch.rotary, NullProbe())
            steps.append(step.clone())
            GreedySampler()(step, batch.tokens.narrow(1, batch.num_tokens, 1))
        batch.advance()
    return torch.stack(steps)


def recorded(replay: ReplayRunner) -> list[CompiledStep]:
    return [step for step in replay._recorded.values() if isinstance(step, CompiledStep)]
