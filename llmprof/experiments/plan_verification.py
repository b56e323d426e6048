"""Is a plan right? The engine's own bytes beside the planned ones, and the first run that fails.

Memory is that of tensors: weights, cache and what is alive beside them. On the CPU no allocator has a
limit of its own, so the budget is enforced where tensors are made: the run whose tensors pass it
fails at that allocation, as it would on a device of that size.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch

from llmprof.architectures.source import ModelSource, require_weights
from llmprof.costs.memory import MemoryNeed
from llmprof.engine.attention_choice import make_chosen
from llmprof.engine.device import resolve_device
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import random_prompts
from llmprof.engine.memory import out_of_memory_explained, predicted_memory
from llmprof.engine.probe import NullProbe
from llmprof.engine.sampling import GreedySampler
from llmprof.errors import CapabilityError, InputError
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.live_tensors import LiveTensors, OverBudgetError
from llmprof.instruments.peak_memory import peak_memory_bytes
from llmprof.instruments.snapshot import resolve_threads
from llmprof.planning.plan import PlanRequest, make_plan
from llmprof.schema.plan import MemoryComparison, Plan, PlanVerification, VerifiedRun
from llmprof.schema.run import Tool
from llmprof.schema.settings import BatchingPolicy, RunConfig, WeightDtype
from llmprof.store.progress import NullProgress, Progress

Varied = Literal["batch", "context"]
OUTPUT_TOKENS: Final = 2
"""A prefill, and a decode step beside a full cache."""
_DEFAULT_PROMPT: Final = 128
_MOST_TRIES: Final = 12
_MOST_BATCH: Final = 4096


@dataclass(frozen=True, slots=True)
class _Work:
    batch: int
    prompt_tokens: int


class _Bench:
    """One loaded engine, on which work is tried under a budget."""

    def __init__(self, source: ModelSource, config: RunConfig, device: str, budget: int) -> None:
        self.source = source
        self.config = config
        self.device = device
        self.budget_bytes = budget
        self.runs: dict[_Work, VerifiedRun] = {}
        self.engine = Engine.load(
            source,
            _with_work(config, _Work(1, 1)),
            device=device,
            threads=resolve_threads(config.execution.threads),
            host_available_bytes=host_memory().available_bytes,
        )
        self.weights = tuple(_tensors_of(self.engine.decoder, set()))
        self.weight_bytes = _weight_bytes(self.weights)
        self.kv_bytes = 0

    def need(self, work: _Work) -> MemoryNeed:
        """What the plan says."""
        config = _with_work(self.config, work)
        return predicted_memory(self.source.config, config, self.engine.dtype.name)

    def fits_on_paper(self, work: _Work) -> bool:
        return self.need(work).total_bytes <= self.budget_bytes

    def fits(self, work: _Work) -> bool:
        """Whether the engine gets through; kept for the report."""
        if work not in self.runs:
            live = LiveTensors(budget_bytes=self.budget_bytes - self.weight_bytes)
            fitted = True
            try:
                self._run(work, live)
            except OverBudgetError:
                fitted = False
            self.runs[work] = VerifiedRun(
                batch=work.batch,
                prompt_tokens=work.prompt_tokens,
                fitted=fitted,
                peak_live_bytes=self.weight_bytes + live.peak_bytes,
            )
        return self.runs[work].fitted

    def peak_bytes(self, work: _Work) -> int:
        """Tensors alive at once where no budget stops the run."""
        live = LiveTensors()
        self._run(work, live)
        return self.weight_bytes + live.peak_bytes

    def _run(self, work: _Work, live: LiveTensors) -> None:
        live.leave_out(self.weights)
        with live, torch.inference_mode(), out_of_memory_explained("verifying the plan"):
            self._work(work)

    def _work(self, work: _Work) -> None:
        vocab, seed = self.source.config.vocab_size, self.config.workload.seed
        prompts = random_prompts(vocab, work.batch, work.prompt_tokens, seed)
        engine = self._fresh_engine()
        batch = engine.open_batch(prompts, output_tokens=OUTPUT_TOKENS)
        self.kv_bytes = batch.cache.bytes_reserved
        sampler, probe = GreedySampler(), NullProbe()
        for _ in range(OUTPUT_TOKENS):
            engine.step(batch, sampler, probe)

    def _fresh_engine(self) -> Engine:
        """The same weights, without the score buffers that an earlier run has left behind."""
        attention = make_chosen(
            self.config, self.source.config, self.engine.cache_kernels, self.device
        )
        return replace(self.engine, decoder=replace(self.engine.decoder, attention=attention))


def verified_plan(
    source: ModelSource,
    config: RunConfig,
    request: PlanRequest,
    *,
    tool: Tool,
    vary: str = "batch",
    progress: Progress | None = None,
) -> Plan:
    """The plan of what this engine holds, with what it really allocated and where it ran out.

    Weights are planned as the engine lays them out, which unpacks what it cannot read packed; the
    prompts of a batch are computed in one step, as static batches do.

    Raises:
        InputError: no weights, or a `vary` that is none.
        CapabilityError: a switch that the engine does not have, several devices, or a budget that
            does not hold the smallest run.
    """
    if vary not in ("batch", "context"):
        raise InputError(f"--vary {vary[:40]}: plan --verify raises batch or context")
    if config.parallel.tensor > 1:
        raise CapabilityError(
            "plan --verify runs on one device", remedy="Leave parallel.tensor out"
        )
    require_weights(source, config.weights)
    progress = progress or NullProgress()
    device = resolve_device(config.device)
    budget = request.device_bytes - request.reserve_bytes
    progress.note(f"loading {source.name}")
    bench = _Bench(source, config, device, budget)
    weights = config.weights.model_copy(update={"dtype": WeightDtype(bench.engine.dtype.name)})
    settled = config.model_copy(update={"weights": weights})
    static = PlanRequest(
        device_bytes=request.device_bytes,
        device_source=request.device_source,
        reserve_bytes=request.reserve_bytes,
        rates=request.rates,
        price_per_hour=request.price_per_hour,
        contexts=request.contexts,
        batches=request.batches,
        policy=BatchingPolicy.STATIC,
    )
    plan = make_plan(source, settled, static, tool=tool)
    first = _first_work(source, request)
    check = _verification(bench, first, "batch" if vary == "batch" else "context", progress)
    return plan.model_copy(update={"verification": check})


def _first_work(source: ModelSource, request: PlanRequest) -> _Work:
    """The first context and batch that were asked for; a context counts the output as well."""
    longest = source.config.max_position_embeddings
    context = request.contexts[0] if request.contexts else min(_DEFAULT_PROMPT, longest)
    return _Work(
        batch=request.batches[0] if request.batches else 1,
        prompt_tokens=max(1, context - OUTPUT_TOKENS),
    )


def _verification(
    bench: _Bench, first: _Work, varied: Varied, progress: Progress
) -> PlanVerification:
    most = _MOST_BATCH if varied == "batch" else _longest_prompt(bench)
    predicted = _first_failure_on_paper(bench, first, varied, most)
    if _size(first, varied) >= predicted:
        need = bench.need(first)
        raise CapabilityError(
            f"the budget does not hold the smallest run, which needs {need.total_bytes:,.0f} bytes",
            remedy="Raise --memory, or lower --context or --batch",
        )
    largest = _resized(first, varied, predicted - 1)
    compared = _compared(bench, largest)
    real, reason = _first_real_failure(bench, first, varied, predicted, most, progress)
    return PlanVerification(
        device=bench.device,
        batch=largest.batch,
        prompt_tokens=largest.prompt_tokens,
        output_tokens=OUTPUT_TOKENS,
        compared=compared,
        process_bytes=peak_memory_bytes(bench.device),
        budget_bytes=bench.budget_bytes,
        varied=varied,
        predicted_first_failure=predicted,
        real_first_failure=real,
        runs=tuple(sorted(bench.runs.values(), key=lambda run: (run.batch, run.prompt_tokens))),
        reason=reason,
    )


def _longest_prompt(bench: _Bench) -> int:
    return bench.source.config.max_position_embeddings - OUTPUT_TOKENS


def _first_failure_on_paper(bench: _Bench, first: _Work, varied: Varied, most: int) -> int:
    """The smallest size that the plan says does not fit; `most` + 1 where all do."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if bench.fits_on_paper(_resized(first, varied, middle)):
            low = middle
        else:
            high = middle
    return high


def _first_real_failure(
    bench: _Bench, first: _Work, varied: Varied, predicted: int, most: int, progress: Progress
) -> tuple[int | None, str | None]:
    """From the predicted one upward while runs fit, downward while they fail."""
    size = predicted
    for tried in range(_MOST_TRIES):
        progress.update("runs", tried, _MOST_TRIES)
        if size > most:
            return None, f"every {varied} up to {most:,} fits"
        if bench.fits(_resized(first, varied, size)):
            size += 1
        elif size == 1 or bench.fits(_resized(first, varied, size - 1)):
            return size, None
        else:
            size -= 1
    return None, f"none of {_MOST_TRIES} tries around it shows where runs begin to fail"


def _compared(bench: _Bench, work: _Work) -> tuple[MemoryComparison, ...]:
    need, peak_bytes = bench.need(work), bench.peak_bytes(work)
    rest = peak_bytes - bench.weight_bytes - bench.kv_bytes
    return (
        MemoryComparison(
            name="weights", planned_bytes=need.weight_bytes, allocated_bytes=bench.weight_bytes
        ),
        MemoryComparison(
            name="KV cache", planned_bytes=need.kv_bytes, allocated_bytes=bench.kv_bytes
        ),
        MemoryComparison(
            name="activations", planned_bytes=need.activation_bytes, allocated_bytes=max(rest, 0)
        ),
        MemoryComparison(
            name="live tensors",
            planned_bytes=need.total_bytes,
            allocated_bytes=peak_bytes,
        ),
    )


def _size(work: _Work, varied: Varied) -> int:
    return work.batch if varied == "batch" else work.prompt_tokens


def _resized(work: _Work, varied: Varied, size: int) -> _Work:
    if varied == "batch":
        return _Work(size, work.prompt_tokens)
    return _Work(work.batch, size)


def _with_work(config: RunConfig, work: _Work) -> RunConfig:
    workload = config.workload.model_copy(
        update={
            "batch": work.batch,
            "prompt_tokens": work.prompt_tokens,
            "output_tokens": OUTPUT_TOKENS,
        }
    )
    return config.model_copy(update={"workload": workload})


def _weight_bytes(weights: Iterable[torch.Tensor]) -> int:
    """Of the tensors that a decoder holds; one that has two names, as a tied head, counts once.

    Of each the bytes of its numbers: the pages that they share with others are process memory.
    """
    found = {(one.data_ptr(), one.nbytes) for one in weights}
    return sum(num_bytes for _, num_bytes in found)


def _tensors_of(thing: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Every tensor that can be reached through fields, attributes, lists and tuples."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from _tensors_of(one, seen)
    elif type(thing).__module__.startswith("llmprof.engine"):
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in {*slots, *getattr(thing, "__dict__", {})}:
            if hasattr(thing, name):
                yield from _tensors_of(getattr(thing, name), seen)
