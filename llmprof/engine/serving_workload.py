"""The engine serving a trace, as the profiler measures it: a round is the whole trace."""

import dataclasses
import hashlib

import numpy as np
import torch

from llmprof.engine.capabilities import check_trace
from llmprof.engine.continuous_scheduler import ContinuousScheduler
from llmprof.engine.description import ceiling_needs, describe_engine
from llmprof.engine.engine import Engine
from llmprof.engine.finite_logits import WatchedSampler
from llmprof.engine.kv_cache import BlockTables
from llmprof.engine.kv_space import BlockSpace, KvSpace, NoSpace
from llmprof.engine.memory import out_of_memory_explained
from llmprof.engine.probe import Probe
from llmprof.engine.request_trace import Request, longest_sequence, make_trace
from llmprof.engine.rope import RotaryTable
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.scheduler import Scheduler
from llmprof.engine.sequence import Sequence
from llmprof.engine.server import Server
from llmprof.engine.serving_round import ServingRound
from llmprof.engine.static_scheduler import StaticScheduler
from llmprof.engine.step_builder import Ids, StepBuilder
from llmprof.engine.workload import RoundDetails
from llmprof.schema.cost import Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.run import EngineDescription
from llmprof.schema.settings import BatchingPolicy, KvLayout, RunConfig


class ServingWorkload:
    """Greedy decoding of requests with random prompts; every round serves the same trace."""

    def __init__(self, engine: Engine, config: RunConfig) -> None:
        """Reserve the cache once, for all rounds.

        Raises:
            InputError: a trace that cannot be read, or a request that is too long for the model.
            CapabilityError: `kv_cache.memory_bytes` does not hold a single block.
            MeasurementFailedError: memory ran out.
        """
        self.model: ModelConfig | None = engine.model
        self.weights: WeightManifest | None = engine.manifest
        self.stated_costs: tuple[StepCost, ...] = ()
        self.engine = engine
        self._config = config
        self.trace = make_trace(config.workload)
        check_trace(engine.model, self.trace, ranks=config.parallel.tensor)
        self._seats = min(config.batching.max_sequences, len(self.trace))
        max_tokens = longest_sequence(self.trace)
        self._plan = engine.plan_pool(num_seats=self._seats, max_tokens=max_tokens)
        with out_of_memory_explained(f"reserving the KV cache of {self._seats} sequences"):
            self._cache = engine.make_cache(self._plan)
            self._rotary = RotaryTable.of(
                engine.model, max_tokens, engine.dtype.torch, engine.device
            )
        self._sampler = WatchedSampler(GreedySampler())
        self._sampled = torch.empty((self._seats, 1), dtype=torch.long, device=engine.device)
        vocab, seed = engine.model.vocab_size, config.workload.seed
        self.ids = tuple(prompt_and_room(request, vocab, seed) for request in self.trace)
        """Per request [prompt_tokens + output_tokens]: the prompt, then what was sampled last."""
        self._shapes: dict[Phase, StepShape] = {}
        """The largest step of each phase so far."""
        self._notes: ServingRound | None = None
        self._compiled_before = engine.num_compiled
        self.needs = ceiling_needs(engine, config, self._steady_shape())

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those that occurred so far."""
        return tuple(phase for phase in Phase if phase in self._shapes)

    def lead_in(self) -> None:
        """None: a round has many steps of each kind, and only its first is unlike the others."""

    def run_round(self, probe: Probe) -> str | None:
        """Serve the trace; the hash is over all output ids, in the order of the requests.

        None where requests arrive over time: which steps they share then follows from the clock,
        and so may the last bits of their logits.

        Raises:
            MeasurementFailedError: memory ran out, or the logits are no numbers.
        """
        server = self._open()
        self._notes = server.notes
        self._compiled_before = self.engine.num_compiled
        self.engine.routed.clear()
        self._sampler.forget()
        with out_of_memory_explained("running a step"):
            server.serve(probe)
        self._sampler.require_finite()
        for phase, shape in server.notes.shapes.items():
            seen = self._shapes.setdefault(phase, shape)
            self._shapes[phase] = max(seen, shape, key=lambda one: one.new_tokens)
        if any(request.arrival_s for request in self.trace):
            return None
        outputs = (
            ids[request.prompt_tokens :] for ids, request in zip(self.ids, self.trace, strict=True)
        )
        return hashlib.sha256(np.concatenate(list(outputs)).tobytes()).hexdigest()

    def round_details(self) -> RoundDetails:
        if self._notes is None:
            return RoundDetails()
        compiled = self.engine.num_compiled - self._compiled_before
        return dataclasses.replace(self._notes.details(), compiled_steps=compiled)

    def describe(self) -> EngineDescription:
        """Cache bytes in use are those of the fullest step of the last round."""
        uses = [use.kv for use in self.round_details().steps if use.kv is not None]
        return describe_engine(
            self.engine,
            self._shapes.values(),
            sampling_kernel=self._sampler.kernel,
            cache=self._cache,
            kv_bytes_used=max((use.used_bytes for use in uses), default=0),
            waits_for_tokens=True,
        )

    def _open(self) -> Server:
        plan = self._plan
        tables = BlockTables(
            num_seats=plan.num_seats,
            max_tokens=plan.max_tokens,
            num_blocks=plan.num_blocks,
            block_tokens=plan.block_tokens,
        )
        space: KvSpace = BlockSpace(tables) if plan.num_blocks else NoSpace()
        notes = ServingRound(
            tuple(map(Sequence.of, self.trace)),
            tables,
            bytes_per_token=self.engine.kv_bytes_per_token,
        )
        builder = StepBuilder(
            self.ids,
            tables,
            in_one_block=self.engine.kv_cache.layout is KvLayout.CONTIGUOUS,
            device=self.engine.device,
        )
        return Server(
            engine=self.engine,
            cache=self._cache,
            rotary=self._rotary,
            scheduler=self._scheduler(space),
            builder=builder,
            notes=notes,
            sampler=self._sampler,
            ids=self.ids,
            sampled=self._sampled,
        )

    def _scheduler(self, space: KvSpace) -> Scheduler:
        recomputes = self.engine.kv_cache.layout is KvLayout.NONE
        match self._config.batching.policy:
            case BatchingPolicy.STATIC:
                return StaticScheduler(space, max_sequences=self._seats, recomputes=recomputes)
            case BatchingPolicy.CONTINUOUS:
                return ContinuousScheduler(
                    space,
                    max_sequences=self._seats,
                    max_step_tokens=self._config.batching.max_step_tokens,
                    recomputes=recomputes,
                )

    def _steady_shape(self) -> StepShape:
        """A full batch in the middle of mean requests: what the live ceilings are read for."""
        prompt = np.mean([request.prompt_tokens for request in self.trace])
        output = np.mean([request.output_tokens for request in self.trace])
        context = max(1, round(float(prompt + output / 2)))
        cached = self.engine.kv_cache.layout is not KvLayout.NONE
        sequence = SequenceShape(
            count=self._seats,
            new_tokens=1 if cached else context,
            cached_tokens=context if cached else 0,
        )
        return StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=self._seats)


def prompt_and_room(request: Request, vocab_size: int, seed: int) -> Ids:
    """Random ids of the whole vocabulary, then zeros for the output; no two requests alike."""
    rng = np.random.default_rng((seed, request.index))
    ids = np.zeros(request.prompt_tokens + request.output_tokens, dtype=np.int32)
    ids[: request.prompt_tokens] = rng.integers(vocab_size, size=request.prompt_tokens)
    return ids
