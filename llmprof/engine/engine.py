"""The reference engine: a model in memory, and static batches of sequences that it moves on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from llmprof.architectures.source import ModelSource, require_weights
from llmprof.engine.attention import make_attention
from llmprof.engine.capabilities import (
    check_capabilities,
    check_length,
    check_prompt,
    check_workload,
)
from llmprof.engine.dtypes import ComputeDtype, compute_dtype
from llmprof.engine.kv_cache import KvCache, make_cache
from llmprof.engine.loading import load_weights
from llmprof.engine.memory import check_memory, out_of_memory_explained, predicted_memory
from llmprof.engine.model import Decoder
from llmprof.engine.probe import NullProbe, Probe
from llmprof.engine.rope import RotaryTable
from llmprof.engine.sampling import Sampler
from llmprof.schema.cost import OpGroup
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import KvLayout, RunConfig


@dataclass(slots=True)
class StaticBatch:
    """Sequences of one length that start and end together; everything stays on the device."""

    tokens: torch.Tensor
    """Ids [batch, max_tokens]: prompts, then what was sampled, then room."""
    num_tokens: int
    """Known tokens of each sequence; those beyond `cache.num_tokens` are the next step's input."""
    cache: KvCache
    rotary: RotaryTable


@dataclass(frozen=True, slots=True)
class GeneratedTokens:
    ids: tuple[int, ...]
    """Of the output, the stop token included."""
    stopped: Literal["max_tokens", "eos"]


@dataclass(frozen=True, slots=True)
class Engine:
    decoder: Decoder
    model: ModelConfig
    manifest: WeightManifest
    """Weights as they lie in memory."""
    dtype: ComputeDtype
    device: str
    threads: int
    kv_layout: KvLayout
    random_weights: bool

    @classmethod
    def load(
        cls,
        source: ModelSource,
        config: RunConfig,
        *,
        device: str,
        threads: int,
        host_available_bytes: int,
    ) -> "Engine":
        """Check that the run is possible, then load the weights.

        Args:
            source: the model as found.
            config: dtype, cache, attention and workload of the run; its `model` and `device` have
                become `source` and `device` already.
            device: `cpu` or `cuda:N`.
            threads: of the CPU, for the whole process.
            host_available_bytes: memory that a new allocation on the host can get.

        Raises:
            CapabilityError: a switch that the engine does not have, or a run that does not fit.
            InputError: more tokens than positions, no weights, or weights that cannot be read.
            MeasurementFailedError: memory ran out in spite of the prediction.
        """
        check_capabilities(config)
        check_workload(config, source.config)
        require_weights(source, config.weights)
        dtype = compute_dtype(config.weights.dtype, source.manifest)
        check_memory(
            predicted_memory(source.config, config, dtype.name),
            name=source.name,
            device=device,
            host_available_bytes=host_available_bytes,
        )
        torch.set_num_threads(threads)
        with out_of_memory_explained(f"loading {source.name}"):
            loaded = load_weights(
                source,
                config.weights.source,
                dtype,
                attention=make_attention(config.attention.kind),
                device=device,
            )
        return cls(
            decoder=loaded.decoder,
            model=source.config,
            manifest=loaded.manifest,
            dtype=dtype,
            device=device,
            threads=threads,
            kv_layout=config.kv_cache.layout,
            random_weights=loaded.random,
        )

    @torch.inference_mode()
    def open_batch(self, prompts: torch.Tensor, *, output_tokens: int) -> StaticBatch:
        """Reserve what a batch needs at its longest. `prompts`: ids [batch, prompt_tokens]."""
        batch, prompt_tokens = prompts.shape
        max_tokens = prompt_tokens + output_tokens
        check_length(self.model, prompt_tokens, output_tokens)
        with out_of_memory_explained(f"reserving {max_tokens} tokens for {batch} sequences"):
            tokens = torch.zeros((batch, max_tokens), dtype=torch.long, device=self.device)
            tokens[:, :prompt_tokens] = prompts.to(self.device)
            cache = make_cache(
                self.kv_layout,
                self.model,
                batch=batch,
                max_tokens=max_tokens,
                dtype=self.dtype.torch,
                device=self.device,
            )
            rotary = RotaryTable.of(self.model, max_tokens, self.dtype.torch, self.device)
        return StaticBatch(tokens, prompt_tokens, cache, rotary)

    @torch.inference_mode()
    def step(self, batch: StaticBatch, sampler: Sampler, probe: Probe) -> None:
        """Run the tokens that are not cached yet, and sample the next one of every sequence.

        The first step of a batch is its prefill, all later ones are decode steps. Nothing waits for
        the device.
        """
        known = batch.num_tokens
        cached = batch.cache.num_tokens
        ids = batch.tokens.narrow(1, cached, known - cached)
        logits = self.decoder.forward(ids, batch.cache, batch.rotary, probe)
        probe.group_begin(OpGroup.SAMPLING)
        sampler(logits, batch.tokens.narrow(1, known, 1))
        probe.group_end()
        batch.num_tokens = known + 1

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
        """
        check_prompt(self.model, prompt_ids)
        batch = self.open_batch(torch.tensor([list(prompt_ids)]), output_tokens=max_tokens)
        probe = NullProbe()
        output: list[int] = []
        while len(output) < max_tokens:
            self.step(batch, sampler, probe)
            output.append(int(batch.tokens[0, batch.num_tokens - 1]))
            if output[-1] in stop_ids:
                return GeneratedTokens(tuple(output), "eos")
        return GeneratedTokens(tuple(output), "max_tokens")
