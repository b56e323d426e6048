"""What a weight format costs in accuracy: what `llmprof quality` prints."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from llmprof.schema.measurement import Caveat
from llmprof.schema.record import Record


class FormatQuality(Record):
    """One weight format over the text, against the reference at the same positions."""

    format: str
    """As the projections are stored: bf16, int8, int8_g32, int4_g32_asym, ..."""
    origin: Literal["floats", "taken_over", "searched", "plain"]
    """Floats; the file's own codes; codes by a search for scales; by plain rounding."""
    weight_bytes: NonNegativeInt
    """Of all tensors, scales and minimums included."""
    perplexity: PositiveFloat
    """exp of the mean negative log-likelihood of each token given those before it."""
    top1_agreement: NonNegativeFloat
    """Share of positions whose most probable next token is the reference's."""
    mean_kl_nats: float
    """Mean over positions of the Kullback-Leibler divergence of this format from the reference."""


class Quality(Record):
    schema_: Literal["llmprof.quality/1"] = Field(default="llmprof.quality/1", alias="schema")
    model: str
    text: str
    """Its title, or the name of its file."""
    num_tokens: PositiveInt
    """Of the text; as many positions are compared, one fewer makes the perplexity."""
    rows_per_step: PositiveInt
    """Tokens per forward pass: so few that the kernels of decode steps multiply."""
    reference: FormatQuality
    """The model in fp32."""
    kernels: dict[str, str]
    """Format -> kernel of its projections."""
    formats: tuple[FormatQuality, ...]
    caveats: tuple[Caveat, ...] = ()
