"""What two launches of the same work that wrote different tokens have in common still.

All rounds of a launch agree with each other, so it is nothing that passes: memory that holds something
else, or a choice that a process makes once.
"""

from typing import Final

from llmprof.experiments.arm_messages import ArmDescription
from llmprof.experiments.output_tokens import first_difference
from llmprof.schema.run import EngineDescription

_NO_KERNEL: Final = "none"


def how_they_differ(one: ArmDescription, other: ArmDescription) -> str:
    """The end of a sentence: from which token on, by which kernels, and from which weights.

    The first token is the prefill's, all others are those of decode steps.
    """
    parts = (
        _from_where(one, other),
        _by_what(one.engine, other.engine),
        with_what_weights(one.engine, other.engine),
    )
    return "".join(parts)


def _from_where(one: ArmDescription, other: ArmDescription) -> str:
    if one.output_tokens is None or other.output_tokens is None:
        return ""
    first = first_difference(one.output_tokens, other.output_tokens)
    return "" if first is None else f", from token {first} on"


def _by_what(one: EngineDescription, other: EngineDescription) -> str:
    """Roles with another kernel, which a process chooses by what the system allows it."""
    roles = sorted({*one.kernels, *other.kernels})
    return "".join(
        f"; {role} by {one.kernels.get(role, _NO_KERNEL)}, then by {other.kernels.get(role, _NO_KERNEL)}"
        for role in roles
        if one.kernels.get(role) != other.kernels.get(role)
    )


def with_what_weights(one: EngineDescription, other: EngineDescription) -> str:
    """The end of a sentence; empty where one of them does not say."""
    checksums = one.weights_checksum, other.weights_checksum
    if None in checksums:
        return ""
    if checksums[0] == checksums[1]:
        return "; their weights were the same to the bit"
    return f"; their weights differed in memory (checksums {checksums[0]}, {checksums[1]})"
