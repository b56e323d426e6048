"""The engine at fixed work, as the profiler measures it: rounds of one prefill and its decodes."""

import hashlib

import torch

from llmprof.costs.fixed_work import step_shapes
from llmprof.engine.description import ceiling_needs, describe_engine
from llmprof.engine.engine import Engine
from llmprof.engine.finite_logits import WatchedSampler
from llmprof.engine.kv_cache import KvPool
from llmprof.engine.memory import out_of_memory_explained
from llmprof.engine.probe import NullProbe, Probe
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.static_batch import StaticBatch
from llmprof.engine.workload import RoundDetails, StepUse
from llmprof.schema.cost import Phase, StepCost, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import EngineDescription, KvUse
from llmprof.schema.settings import ContextKind, RunConfig

_LEAD_IN_STEPS = 4


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
        self.needs = ceiling_needs(engine, config, self._shapes[-1])
        self._sampler = WatchedSampler(GreedySampler())
        self._batch = self._open()
        self._first_output = self._batch.num_tokens
        self._prepare()
        self._uses = tuple(map(self._use, self._shapes))
        self._compiled_before = engine.num_compiled

    def lead_in(self) -> None:
        """Decode steps at the end of the prompt; of a round that has none, its prefill."""
        batch, decodes = self._batch, self._shapes[-1].phase is Phase.DECODE
        if decodes and batch.cache.appends:
            batch.restart(num_cached=batch.prompt_tokens)
            steps = min(_LEAD_IN_STEPS, self._settings.workload.output_tokens - 1)
        else:
            self._restart()
            steps = 1
        with torch.inference_mode(), out_of_memory_explained("running a step"):
            for _ in range(steps):
                self._engine.step(batch, self._sampler, NullProbe())

    def run_round(self, probe: Probe) -> str:
        """Run every step; the hash is over the ids [batch, steps] that were sampled.

        Raises:
            MeasurementFailedError: memory ran out, or the logits are no numbers.
        """
        self._restart()
        self._engine.routed.clear()
        self._compiled_before = self._engine.num_compiled
        self._sampler.forget()
        self._first_output = self._batch.num_tokens
        with torch.inference_mode(), out_of_memory_explained("running a step"):
            for shape in self._shapes:
                probe.step_begin(shape)
                self._engine.step(self._batch, self._sampler, probe)
                probe.step_end()
            self._sampler.require_finite()
        return hashlib.sha256(self.output_tokens().numpy().tobytes()).hexdigest()

    def output_tokens(self) -> torch.Tensor:
        """Ids [batch, steps] that the last round sampled, on the host."""
        output = self._batch.tokens[:, self._first_output : self._batch.num_tokens]
        return output.cpu().contiguous()

    def round_details(self) -> RoundDetails:
        compiled = self._engine.num_compiled - self._compiled_before
        return RoundDetails(steps=self._uses, compiled_steps=compiled)

    def describe(self) -> EngineDescription:
        cache = self._batch.cache
        last = self._shapes[-1].sequences[0]
        cached_at_end = last.count * (last.cached_tokens + last.new_tokens)
        return describe_engine(
            self._engine,
            self._shapes,
            sampling_kernel=self._sampler.kernel,
            cache=cache,
            kv_bytes_used=int(cached_at_end * cache.bytes_per_token),
            waits_for_tokens=False,
        )

    def _use(self, shape: StepShape) -> StepUse:
        """A static batch reserves everything at its start."""
        cache, blocks = self._batch.cache, self._batch.num_blocks
        if not cache.appends:
            return StepUse()
        used = (shape.cached_tokens + shape.new_tokens) * cache.bytes_per_token
        return StepUse(
            kv=KvUse(
                reserved_bytes=cache.bytes_reserved,
                used_bytes=round(used),
                blocks_held=blocks,
                blocks_total=blocks,
            )
        )

    def _open(self) -> StaticBatch:
        workload = self._settings.workload
        prompts = random_prompts(
            self._engine.model.vocab_size, workload.batch, workload.prompt_tokens, workload.seed
        )
        batch = self._engine.open_batch(prompts, output_tokens=workload.output_tokens)
        if workload.context is ContextKind.SYNTHETIC:
            assert isinstance(batch.cache, KvPool), "refused by check_workload"
            batch.cache.fill_random(workload.seed)
        return batch

    def _prepare(self) -> None:
        """Run a decode step that counts for nothing: kernels are compiled and steps recorded here."""
        batch = self._batch
        if self._shapes[-1].phase is not Phase.DECODE or not batch.cache.appends:
            return
        batch.restart(num_cached=batch.prompt_tokens)
        with out_of_memory_explained("running a step"):
            self._engine.step(batch, self._sampler, NullProbe())

    def _restart(self) -> None:
        """Back to the prompts; a filled cache keeps its noise and needs one token to go on from."""
        workload = self._settings.workload
        filled = workload.context is ContextKind.SYNTHETIC
        self._batch.restart(num_cached=workload.prompt_tokens if filled else 0)


def random_prompts(vocab_size: int, batch: int, prompt_tokens: int, seed: int) -> torch.Tensor:
    """Ids [batch, prompt_tokens], uniform over the vocabulary: no two sequences alike."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (batch, prompt_tokens), generator=generator)
