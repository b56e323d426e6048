"""The engine at fixed work, as the profiler measures it: rounds of one prefill and its decodes."""

import hashlib

import torch

from llmprof.costs.options import CostOptions, options_from
from llmprof.costs.step import step_cost
from llmprof.engine import norm
from llmprof.engine.engine import Engine, StaticBatch
from llmprof.engine.kv_cache import ContiguousCache
from llmprof.engine.linear import kernel_name
from llmprof.engine.memory import out_of_memory_explained
from llmprof.engine.probe import Probe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.workload import CeilingNeeds
from llmprof.schema.cost import Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import EngineDescription
from llmprof.schema.settings import ContextKind, KvLayout, RunConfig


class EngineWorkload:
    """Greedy decoding of a static batch of random prompts; every round does the same work."""

    def __init__(self, engine: Engine, config: RunConfig) -> None:
        """Reserve everything, so that rounds allocate nothing that stays.

        Raises:
            InputError: more tokens than the model has positions.
            MeasurementFailedError: memory ran out.
        """
        self.model: ModelConfig | None = engine.model
        self.weights: WeightManifest | None = engine.manifest
        self.stated_costs: tuple[StepCost, ...] = ()
        self._engine = engine
        self._settings = config
        self._shapes = step_shapes(config)
        self.phases = tuple(dict.fromkeys(shape.phase for shape in self._shapes))
        self.needs = _needs(engine, config, self._shapes[-1])
        self._sampler = GreedySampler()
        self._batch = self._open()

    def run_round(self, probe: Probe) -> str:
        """Run every step; the hash is over the ids [batch, steps] that were sampled."""
        self._restart()
        first = self._batch.num_tokens
        with torch.inference_mode(), out_of_memory_explained("running a step"):
            for shape in self._shapes:
                probe.step_begin(shape)
                self._engine.step(self._batch, self._sampler, probe)
                probe.step_end()
        output = self._batch.tokens[:, first : self._batch.num_tokens]
        return hashlib.sha256(output.cpu().contiguous().numpy().tobytes()).hexdigest()

    def describe(self) -> EngineDescription:
        engine, cache = self._engine, self._batch.cache
        last = self._shapes[-1].sequences[0]
        cached_at_end = last.count * (last.cached_tokens + last.new_tokens)
        return EngineDescription(
            name="llmprof reference engine",
            kernels=self._kernels(),
            compute_dtype=engine.dtype.name,
            kv_dtype=engine.dtype.name,
            kv_bytes_reserved=cache.bytes_reserved,
            kv_bytes_used=cached_at_end * cache.bytes_per_token,
            weight_bytes=engine.manifest.stored_bytes,
            threads=engine.threads,
            random_weights=engine.random_weights,
        )

    def _kernels(self) -> dict[str, str]:
        """One entry per role; projections of prefill and decode may differ, by their rows."""
        projections = {
            f"projections.{shape.phase.value}": kernel_name(shape.new_tokens, self._engine.device)
            for shape in self._shapes
        }
        return {
            **projections,
            "lm_head": kernel_name(self._shapes[0].logit_rows, self._engine.device),
            "attention": self._engine.decoder.attention.kernel,
            "norm": norm.kernel_name(self._engine.device),
            "sampling": self._sampler.kernel,
        }

    def _open(self) -> StaticBatch:
        workload = self._settings.workload
        prompts = random_prompts(
            self._engine.model.vocab_size, workload.batch, workload.prompt_tokens, workload.seed
        )
        batch = self._engine.open_batch(prompts, output_tokens=workload.output_tokens)
        if workload.context is ContextKind.SYNTHETIC:
            assert isinstance(batch.cache, ContiguousCache), "refused by check_workload"
            batch.cache.fill_random(workload.prompt_tokens, workload.seed)
        return batch

    def _restart(self) -> None:
        """Back to the prompts; a filled cache keeps its noise and needs one token to go on from."""
        workload = self._settings.workload
        filled = workload.context is ContextKind.SYNTHETIC
        self._batch.cache.reset(workload.prompt_tokens if filled else 0)
        self._batch.num_tokens = workload.prompt_tokens + (1 if filled else 0)


def random_prompts(vocab_size: int, batch: int, prompt_tokens: int, seed: int) -> torch.Tensor:
    """Ids [batch, prompt_tokens], uniform over the vocabulary: no two sequences alike."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (batch, prompt_tokens), generator=generator)


def step_shapes(config: RunConfig) -> tuple[StepShape, ...]:
    """The steps of a round: prefill gives the first output token, each decode step one more.

    `measure.steps_per_round` caps the decode steps. A synthetic context leaves the prefill out.
    """
    workload, cap = config.workload, config.measure.steps_per_round
    decodes = workload.output_tokens - 1
    decodes = decodes if cap is None else min(decodes, cap)
    prompt = _shape(Phase.PREFILL, workload.batch, workload.prompt_tokens, 0)
    steps = () if workload.context is ContextKind.SYNTHETIC else (prompt,)
    contexts = range(workload.prompt_tokens, workload.prompt_tokens + decodes)
    if config.kv_cache.layout is KvLayout.NONE:
        repeated = (_shape(Phase.DECODE, workload.batch, past + 1, 0) for past in contexts)
        return (*steps, *repeated)
    return (*steps, *(_shape(Phase.DECODE, workload.batch, 1, past) for past in contexts))


def _shape(phase: Phase, batch: int, new_tokens: int, cached_tokens: int) -> StepShape:
    sequence = SequenceShape(count=batch, new_tokens=new_tokens, cached_tokens=cached_tokens)
    return StepShape(phase=phase, sequences=(sequence,), logit_rows=batch)


def _needs(engine: Engine, config: RunConfig, steady: StepShape) -> CeilingNeeds:
    """From the last step: a decode step where there is one."""
    options: CostOptions = options_from(
        config, compute_dtype=engine.dtype.name, kv_dtype=engine.dtype.name
    )
    traffic = step_cost(engine.model, engine.manifest, steady, options).traffic
    layer, head = engine.decoder.layers[0], engine.decoder.head
    projections = (layer.qkv, layer.output, layer.gate_up, layer.down, head)
    is_skinny = steady.phase is Phase.DECODE and config.kv_cache.layout is not KvLayout.NONE
    return CeilingNeeds(
        working_set_bytes=int(traffic.weights + traffic.kv_read),
        compute_dtype=engine.dtype.name,
        skinny_rows=steady.new_tokens if is_skinny else None,
        skinny_shapes=tuple(linear.shape for linear in projections) if is_skinny else (),
    )
