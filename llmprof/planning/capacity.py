"""How many sequences, or how long ones, fit into what weights leave of a device's memory."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from llmprof.costs.kv_cache import KvConvention, kv_bytes_at
from llmprof.costs.largest_step import chunked_prefill
from llmprof.costs.linear_state import state_bytes_per_sequence
from llmprof.costs.memory import peak_activation_bytes
from llmprof.costs.options import CostOptions
from llmprof.costs.tensor_parallel import weight_bytes_per_device
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import MAX_SEQUENCES, BatchingPolicy, KvLayout


@dataclass(frozen=True)
class Capacity:
    """One model in one format on devices that share out every layer; sizes are of one of them."""

    model: ModelConfig
    weights: WeightManifest
    options: CostOptions
    devices: int
    budget_bytes: int
    """The memory of a device without the reserve."""
    policy: BatchingPolicy
    """`static` computes all prompts in one step, `continuous` at most `max_step_tokens` of them."""
    max_step_tokens: int
    convention: KvConvention = KvConvention.ENGINE_ALLOCATED
    reserved_context_tokens: int | None = None
    """What a contiguous cache reserves per sequence, whatever it comes to hold; None: its own
    context."""

    @cached_property
    def weight_bytes(self) -> int:
        """Raises InputError for heads that cannot be shared out evenly."""
        return weight_bytes_per_device(self.model, self.weights, self.devices)

    @property
    def block_tokens(self) -> int:
        """Without pages a sequence holds as many tokens as it has."""
        paged = self.options.kv_layout is KvLayout.PAGED
        return self.options.block_tokens if paged else 1

    def sequence_bytes(self, tokens: int) -> float:
        """KV cache and states of one sequence at its longest."""
        return self._cache_bytes(tokens) + state_bytes_per_sequence(self.model) / self.devices

    def activation_bytes(self, sequences: int, tokens: int) -> float:
        """The most that is alive at once, in the largest prefill or in a decode step of all.

        Counted whole on every device: the residual stream and the logits are not shared out, and
        what is shared out of the rest depends on the implementation. With them counts the block of
        cache that rows which pad a recorded step write to.
        """
        steps = (self._prefill(sequences, tokens), self._decode(sequences, tokens))
        largest = max(peak_activation_bytes(self.model, step, self.options) for step in steps)
        return largest + self.padding_bytes(tokens)

    def padding_bytes(self, tokens: int) -> float:
        """Of a contiguous cache a block is as long as every sequence; 0 where nothing is padded."""
        if not self.options.row_buckets:
            return 0.0
        contiguous = self.options.kv_layout is KvLayout.CONTIGUOUS
        return self._cache_bytes(tokens if contiguous else self.options.block_tokens)

    def needed_bytes(self, sequences: int, tokens: int) -> float:
        caches = sequences * self.sequence_bytes(tokens)
        return self.weight_bytes + self.activation_bytes(sequences, tokens) + caches

    def fits(self, sequences: int, tokens: int) -> bool:
        return self.needed_bytes(sequences, tokens) <= self.budget_bytes

    def most_sequences(self, tokens: int) -> int:
        """0 where not one fits."""
        return _largest(lambda count: self.fits(count, tokens), MAX_SEQUENCES)

    def longest_context(self, sequences: int) -> int:
        """Of each of so many; 0 where not a single token fits, the model's positions at most."""
        longest = self.model.max_position_embeddings
        return _largest(lambda tokens: self.fits(sequences, tokens), longest)

    def _cache_bytes(self, tokens: int) -> float:
        layout = self.options.kv_layout
        if layout is KvLayout.NONE:
            return 0.0
        reserved = self.reserved_context_tokens
        contiguous = layout is KvLayout.CONTIGUOUS
        return kv_bytes_at(
            self.model,
            reserved if contiguous and reserved else tokens,
            self.options.kv_bytes_per_number,
            convention=self.convention,
            block_tokens=self.block_tokens,
            tensor_parallel=self.devices,
        )

    def _prefill(self, sequences: int, tokens: int) -> StepShape:
        chunked = self.policy is BatchingPolicy.CONTINUOUS
        if chunked and self.options.kv_layout is not KvLayout.NONE:
            return chunked_prefill(
                sequences=sequences, tokens=tokens, max_step_tokens=self.max_step_tokens
            )
        shape = SequenceShape(count=sequences, new_tokens=tokens, cached_tokens=0)
        return StepShape(phase=Phase.PREFILL, sequences=(shape,), logit_rows=sequences)

    def _decode(self, sequences: int, tokens: int) -> StepShape:
        return decode_shape(self.options, sequences, tokens)


def decode_shape(options: CostOptions, sequences: int, tokens: int) -> StepShape:
    """The step that fills the context: its new token is the last that has room.

    Without a cache it computes every token again.
    """
    repeats = options.kv_layout is KvLayout.NONE
    shape = SequenceShape(
        count=sequences,
        new_tokens=tokens if repeats else 1,
        cached_tokens=0 if repeats else tokens - 1,
    )
    return StepShape(phase=Phase.DECODE, sequences=(shape,), logit_rows=sequences)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest of 1 ... `most` that fits, where all smaller ones fit as well; 0 if none does."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
