"""The reference engine: a model in memory, and static batches of sequences that it moves on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from llmprof.architectures.source import ModelSource
from llmprof.costs.cache_access import kv_access
from llmprof.costs.fusion import fused_rows_of
from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.options import kv_bytes_per_number
from llmprof.costs.row_buckets import buckets_of
from llmprof.engine.admission import admit
from llmprof.engine.attention import Attention, CacheKernels
from llmprof.engine.attention_choice import cache_kernels, make_chosen
from llmprof.engine.capabilities import check_length, check_prompt
from llmprof.engine.dtypes import ComputeDtype
from llmprof.engine.execution import EagerRunner, StepRunner, make_runner
from llmprof.engine.finite_logits import CheckingSampler
from llmprof.engine.kernels.fused import fused_trouble
from llmprof.engine.kv_cache import (
    KvCache,
    PoolPlan,
    make_cache,
    plan_pool,
    require_whole_batch,
    stored_dtype,
)
from llmprof.engine.loading import load_weights
from llmprof.engine.memory import out_of_memory_explained
from llmprof.engine.model import Decoder
from llmprof.engine.probe import NullProbe, Probe
from llmprof.engine.rank_group import RankGroup
from llmprof.engine.rope import RotaryTable
from llmprof.engine.routing import RoutedExperts, make_choice
from llmprof.engine.sampling import Sampler
from llmprof.engine.static_batch import StaticBatch
from llmprof.engine.step_batch import StepBatch
from llmprof.engine.vector_math_start import begin_vector_math
from llmprof.schema.cost import KvAccess, OpGroup
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import KvCacheSettings, KvLayout, RunConfig
from llmprof.store.progress import Progress


@dataclass(frozen=True, slots=True)
class GeneratedTokens:
    ids: tuple[int, ...]
    """Of the output, the stop token included."""
    stopped: Literal["max_tokens", "eos"]


@dataclass(frozen=True, slots=True)
class Engine:
    decoder: Decoder
    model: ModelConfig
    """The whole one; what is shared out over ranks is the decoder's."""
    manifest: WeightManifest
    """Weights as they lie in memory."""
    dtype: ComputeDtype
    device: str
    threads: int
    kv_cache: KvCacheSettings
    kv_access: KvAccess
    """Where attention gathers a copy of the cache; `costs` has to know."""
    random_weights: bool
    cache_kernels: CacheKernels | None = None
    """What fused attention uses where anything is cached; None where nothing is, or for standard."""
    runner: StepRunner = field(default_factory=EagerRunner)
    routed: RoutedExperts = field(default_factory=RoutedExperts)
    """Experts that steps read, of a model that has some."""
    allocated: tuple[torch.Tensor, ...] = ()
    """All that the weights lie in."""

    @classmethod
    def load(
        cls,
        source: ModelSource,
        config: RunConfig,
        *,
        device: str,
        threads: int,
        host_available_bytes: int,
        ranks: RankGroup | None = None,
        progress: Progress | None = None,
    ) -> "Engine":
        """Check that the run is possible, then load the weights.

        Args:
            source: the model as found.
            config: dtype, cache, attention and workload of the run; its `model` and `device` have
                become `source` and `device` already.
            device: `cpu` or `cuda:N`.
            threads: of the CPU, for the whole process.
            host_available_bytes: memory that a new allocation on the host can get.
            ranks: the processes that share out the model, where `parallel.tensor` is more than 1.
            progress: told when steps are compiled.

        Raises:
            CapabilityError: a switch that the engine does not have, or a run that does not fit.
            InputError: more tokens than positions, no weights, or weights that cannot be read.
            MeasurementFailedError: memory ran out in spite of the prediction.
        """
        dtype = admit(
            source,
            config,
            device=device,
            host_available_bytes=host_available_bytes,
            num_ranks=1 if ranks is None else ranks.size,
        )
        runner = _runner(config, device, progress)
        torch.set_num_threads(threads)
        begin_vector_math()
        kernels = cache_kernels(
            config,
            source.config,
            dtype,
            device=device,
            num_ranks=1 if ranks is None else ranks.size,
        )
        attention = make_chosen(config, source.config, kernels, device)
        with out_of_memory_explained(f"loading {source.name}"):
            loaded = load_weights(
                source,
                config.weights,
                dtype,
                attention=attention,
                device=device,
                choice=make_choice(source.config, config.routing, device),
                ranks=ranks,
            )
        return cls(
            decoder=replace(loaded.decoder, fused_rows=_fused_rows(config, dtype, device)),
            model=source.config,
            manifest=loaded.manifest,
            dtype=dtype,
            device=device,
            threads=threads,
            kv_cache=config.kv_cache,
            kv_access=_kv_access(config, attention),
            cache_kernels=kernels,
            random_weights=loaded.random,
            runner=runner,
            routed=loaded.routed,
            allocated=loaded.allocated,
        )

    def arranged(self, config: RunConfig, progress: Progress | None = None) -> "Engine":
        """Another engine on the same weights: its own cache, attention, batching and execution.

        `config` has been admitted, and its weights, routing and threads are those that were loaded.
        """
        torch.set_num_threads(self.threads)
        ranks = self.decoder.ranks
        kernels = cache_kernels(
            config,
            self.model,
            self.dtype,
            device=self.device,
            num_ranks=1 if ranks is None else ranks.size,
        )
        attention = make_chosen(config, self.model, kernels, self.device)
        return replace(
            self,
            decoder=replace(
                self.decoder,
                attention=attention,
                fused_rows=_fused_rows(config, self.dtype, self.device),
            ),
            kv_cache=config.kv_cache,
            kv_access=_kv_access(config, attention),
            cache_kernels=kernels,
            runner=_runner(config, self.device, progress),
        )

    @property
    def num_compiled(self) -> int:
        """Decode steps that torch.compile has compiled so far."""
        compilations = self.runner.compilations
        return 0 if compilations is None else compilations.count

    @property
    def kv_dtype(self) -> str:
        """What keys and values are kept in: fp32, bf16, fp16, int8 or fp8."""
        return stored_dtype(self.kv_cache.dtype, self.dtype.name)

    @property
    def kv_bytes_per_token(self) -> float:
        """Of one sequence, all layers, scales included; 0 without a cache."""
        if self.kv_cache.layout is KvLayout.NONE:
            return 0.0
        number = kv_bytes_per_number(self.kv_dtype, self.model.head_dim)
        return kv_bytes_per_token(self.decoder.config, number)

    def plan_pool(self, *, num_seats: int, max_tokens: int) -> PoolPlan:
        """The store for so many sequences at once, as far as `kv_cache.memory_bytes` allows.

        Raises:
            CapabilityError: the budget does not hold a single block.
        """
        return plan_pool(
            self.kv_cache,
            num_seats=num_seats,
            max_tokens=max_tokens,
            bytes_per_token=self.kv_bytes_per_token,
            scratch=bool(self.runner.row_buckets),
        )

    @torch.inference_mode()
    def make_cache(self, plan: PoolPlan) -> KvCache:
        """Reserve a store."""
        return make_cache(
            plan,
            self.decoder.config,
            kv_dtype=self.kv_dtype,
            dtype=self.dtype.torch,
            device=self.device,
        )

    @torch.inference_mode()
    def open_batch(self, prompts: torch.Tensor, *, output_tokens: int) -> StaticBatch:
        """Reserve what a batch needs at its longest. `prompts`: ids [batch, prompt_tokens].

        Raises:
            InputError: more tokens than the model has positions.
            CapabilityError: `kv_cache.memory_bytes` does not hold the batch.
            MeasurementFailedError: memory ran out.
        """
        batch, prompt_tokens = prompts.shape
        max_tokens = prompt_tokens + output_tokens
        check_length(self.model, prompt_tokens, output_tokens)
        plan = self.plan_pool(num_seats=batch, max_tokens=max_tokens)
        require_whole_batch(plan, bytes_per_token=self.kv_bytes_per_token)
        with out_of_memory_explained(f"reserving {max_tokens} tokens for {batch} sequences"):
            return StaticBatch(
                prompts,
                output_tokens=output_tokens,
                cache=self.make_cache(plan),
                layout=self.kv_cache.layout,
                rotary=RotaryTable.of(self.model, max_tokens, self.dtype.torch, self.device),
                plan=plan,
                device=self.device,
            )

    @torch.inference_mode()
    def step(self, batch: StaticBatch, sampler: Sampler, probe: Probe) -> None:
        """Run the tokens that are not cached yet, and sample the next one of every sequence.

        Nothing waits for the device.
        """
        logits = self.forward(batch.next_step(), batch.cache, batch.rotary, probe)
        self.sample(logits, sampler, batch.tokens.narrow(1, batch.num_tokens, 1), probe)
        batch.advance()

    def forward(
        self, step: StepBatch, cache: KvCache, rotary: RotaryTable, probe: Probe
    ) -> torch.Tensor:
        """As `Decoder.forward`, in the way that `execution.mode` says; valid until the next step."""
        return self.runner.forward(self.decoder, step, cache, rotary, probe)

    def sample(
        self, logits: torch.Tensor, sampler: Sampler, out: torch.Tensor, probe: Probe
    ) -> None:
        """One token id per row of logits [rows, vocab_size] into `out` [rows, 1]."""
        probe.group_begin(OpGroup.SAMPLING)
        sampler(logits, out)
        probe.group_end()

    def generate(
        self,
        prompt_ids: Sequence[int],
        sampler: Sampler,
        *,
        max_tokens: int,
        stop_ids: Collection[int] = (),
    ) -> GeneratedTokens:
        """Continue one prompt until a stop token or `max_tokens`.

        Raises:
            InputError: an empty prompt, one that is too long, or an id beyond the vocabulary.
            MeasurementFailedError: memory ran out, or the logits are no numbers.
        """
        check_prompt(self.model, prompt_ids)
        sampler = CheckingSampler(sampler)
        batch = self.open_batch(torch.tensor([list(prompt_ids)]), output_tokens=max_tokens)
        probe = NullProbe()
        output: list[int] = []
        while len(output) < max_tokens:
            self.step(batch, sampler, probe)
            output.append(int(batch.tokens[0, batch.num_tokens - 1]))
            if output[-1] in stop_ids:
                return GeneratedTokens(tuple(output), "eos")
        return GeneratedTokens(tuple(output), "max_tokens")


def _fused_rows(config: RunConfig, dtype: ComputeDtype, device: str) -> int:
    """Raises CapabilityError where fused kernels are asked for and cannot be."""
    return fused_rows_of(config.execution, dtype.name, trouble=fused_trouble(device))


def _kv_access(config: RunConfig, attention: Attention) -> KvAccess:
    whole_steps = attention.step_kernel is not None
    return kv_access(
        config,
        decode_kernel=whole_steps or attention.decode_kernel is not None,
        chunk_kernel=whole_steps or attention.chunk_kernel is not None,
    )


def _runner(config: RunConfig, device: str, progress: Progress | None) -> StepRunner:
    """Raises CapabilityError for a mode that the device or the cache does not have."""
    return make_runner(
        config.execution.mode,
        device=device,
        layout=config.kv_cache.layout,
        row_buckets=buckets_of(config, device),
        attention=config.attention.kind,
        progress=progress,
    )
