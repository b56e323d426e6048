"""Work and traffic of the ops of one step, from shapes alone."""

from enum import StrEnum
from typing import Final

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from llmprof.schema.record import Record


class Phase(StrEnum):
    """The regimes of inference; `mixed` steps hold prefill chunks and decodes side by side."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class OpGroup(StrEnum):
    """The parts of a forward pass that are costed, timed and judged together."""

    EMBEDDING = "embedding"
    NORM = "norm"
    QKV_PROJECTION = "qkv_projection"
    ROPE = "rope"
    KV_APPEND = "kv_append"
    ATTENTION = "attention"
    OUTPUT_PROJECTION = "output_projection"
    """The projection after attention, with its residual addition."""
    GATE_UP_PROJECTION = "gate_up_projection"
    ACTIVATION = "activation"
    DOWN_PROJECTION = "down_projection"
    """The projection back to the hidden size, with its residual addition."""
    LM_HEAD = "lm_head"
    SAMPLING = "sampling"
    COMMUNICATION = "communication"
    """Sums and copies between the devices that share out a model."""
    OTHER = "other"

    @property
    def label(self) -> str:
        """What people read: gate/up projection, KV append."""
        words = self.value.replace("_", " ")
        for written, read in _AS_READ.items():
            words = words.replace(written, read)
        return words


_AS_READ: Final = {"gate up": "gate/up", "qkv ": "QKV ", "kv ": "KV ", "lm ": "LM "}
PROJECTIONS = (
    OpGroup.QKV_PROJECTION,
    OpGroup.OUTPUT_PROJECTION,
    OpGroup.GATE_UP_PROJECTION,
    OpGroup.DOWN_PROJECTION,
    OpGroup.LM_HEAD,
)


class KvRead(StrEnum):
    """How attention gets at cached keys and values."""

    IN_PLACE = "in_place"
    """Views of the cache, or block by block through its table: every byte is read once."""
    GATHERED = "gathered"
    """Copied first into one array of the model's dtype, every sequence as long as the longest, which
    attention then reads: the copy is written and read beside the cache."""


class KvAccess(Record):
    """How the attention of a run gets at the cache, by what it is asked."""

    decode: KvRead = KvRead.IN_PLACE
    """One new token per sequence."""
    chunk: KvRead = KvRead.IN_PLACE
    """Several new tokens after cached ones. A prompt without any never reads the cache."""


class SequenceShape(Record):
    """`count` sequences that each bring `new_tokens` to a step and hold `cached_tokens`."""

    count: PositiveInt = 1
    new_tokens: PositiveInt
    cached_tokens: NonNegativeInt


class StepShape(Record):
    """What one forward pass works on; every cost follows from it."""

    phase: Phase
    sequences: tuple[SequenceShape, ...] = Field(min_length=1)
    logit_rows: NonNegativeInt
    """Rows that reach the head: one per sequence that samples, or every token."""

    @property
    def num_sequences(self) -> int:
        return sum(sequence.count for sequence in self.sequences)

    @property
    def new_tokens(self) -> int:
        return sum(sequence.count * sequence.new_tokens for sequence in self.sequences)

    @property
    def cached_tokens(self) -> int:
        return sum(sequence.count * sequence.cached_tokens for sequence in self.sequences)


class ExpertsRead(Record):
    """How many different experts the tokens of a step choose in one layer, on average."""

    tokens: PositiveInt
    """New ones in the step."""
    experts: NonNegativeFloat


class ByteTraffic(Record):
    """Bytes that must move, by kind, as they are stored. Traffic adds."""

    weights: NonNegativeFloat = 0.0
    kv_read: NonNegativeFloat = 0.0
    kv_write: NonNegativeFloat = 0.0
    activations: NonNegativeFloat = 0.0
    """Inputs and outputs of the op; mostly served by caches, so they carry an interval from zero."""
    scores: NonNegativeFloat = 0.0
    """The score matrix that standard attention writes and reads back."""
    logits: NonNegativeFloat = 0.0
    copies: NonNegativeFloat = 0.0
    """Gathered, dequantized, expanded or padded copies."""
    padding: NonNegativeFloat = 0.0
    """Activations and logits of rows that a recorded step computes beyond those of its batch."""

    @property
    def total(self) -> float:
        """Every kind, activations included."""
        return self.required + self.activations

    @property
    def required(self) -> float:
        """Every kind except activations: the lower bound of memory traffic."""
        moved = self.weights + self.kv_read + self.kv_write + self.scores + self.logits
        return moved + self.copies + self.padding

    def __add__(self, other: "ByteTraffic") -> "ByteTraffic":
        return ByteTraffic(
            weights=self.weights + other.weights,
            kv_read=self.kv_read + other.kv_read,
            kv_write=self.kv_write + other.kv_write,
            activations=self.activations + other.activations,
            scores=self.scores + other.scores,
            logits=self.logits + other.logits,
            copies=self.copies + other.copies,
            padding=self.padding + other.padding,
        )


class OpCost(Record):
    """One kind of op in a step, summed over its calls (usually one per layer)."""

    name: str
    """Unique within a step: `qkv_projection`, `attention.scores`, ..."""
    group: OpGroup
    calls: PositiveInt
    """Times it runs in the step: the roof's maximum is taken per call, and calls are alike."""
    compute_dtype: str
    flops: NonNegativeFloat
    """What the configured kernel needs: for flash what the mask and a sliding window leave, for
    standard the full rectangle."""
    flops_dense: NonNegativeFloat
    """Attention over the full rectangle of new by attended tokens."""
    flops_causal: NonNegativeFloat
    """Attention over exactly the pairs that a causal mask leaves, every layer in full."""
    traffic: ByteTraffic
    exchanged_bytes: NonNegativeFloat = 0.0
    """Of one device's buffers, where the op is a collective: what is summed, or what it adds to the
    others'."""


class StepCost(Record):
    """The ops of one step."""

    shape: StepShape
    ops: tuple[OpCost, ...]

    def of_groups(self, *groups: OpGroup) -> "StepCost":
        """The same step with the ops of these groups alone."""
        ops = tuple(op for op in self.ops if op.group in groups)
        return StepCost(shape=self.shape, ops=ops)

    @property
    def flops(self) -> float:
        return sum(op.flops for op in self.ops)

    @property
    def flops_dense(self) -> float:
        return sum(op.flops_dense for op in self.ops)

    @property
    def flops_causal(self) -> float:
        return sum(op.flops_causal for op in self.ops)

    @property
    def traffic(self) -> ByteTraffic:
        total = ByteTraffic()
        for op in self.ops:
            total = total + op.traffic
        return total

    @property
    def intensity_flops_per_byte(self) -> float | None:
        """FLOPs over required bytes, activations apart; null where no byte is required."""
        required = self.traffic.required
        return self.flops / required if required else None
