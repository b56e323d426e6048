"""What two launches of the same work that wrote different tokens have in common still.

All rounds of a launch agree with each other, so it is nothing that passes: memory that holds something
else, or a choice that a process makes once.
"""

from llmprof.experiments.arm_messages import ArmDescription
from llmprof.experiments.output_tokens import first_difference
from llmprof.schema.run import EngineDescription


def how_they_differ(one: ArmDescription, other: ArmDescription) -> str:
    """The end of a sentence: from which token on, and whether both had the same weights.

    The first token is the prefill's, all others are those of decode steps.
    """
    return _from_where(one, other) + with_what_weights(one.engine, other.engine)


def _from_where(one: ArmDescription, other: ArmDescription) -> str:
    if one.output_tokens is None or other.output_tokens is None:
        return ""
    first = first_difference(one.output_tokens, other.output_tokens)
    return "" if first is None else f", from token {first} on"


def with_what_weights(one: EngineDescription, other: EngineDescription) -> str:
    """The end of a sentence; empty where one of them does not say."""
    checksums = one.weights_checksum, other.weights_checksum
    if None in checksums:
        return ""
    if checksums[0] == checksums[1]:
        return "; their weights were the same to the bit"
    return f"; their weights differed in memory (checksums {checksums[0]}, {checksums[1]})"
