"""Whether a measurement had the machine to itself."""

from typing import Final

from llmprof.schema.run import Contention

MOST_RUN_QUEUE_FRACTION: Final = 0.05
"""Of the time, that threads of this process were kept waiting for a core."""


def is_contended(contention: Contention) -> bool:
    """Other processes took cores that this one wanted; False where the system does not tell."""
    waited = contention.run_queue_fraction
    return waited is not None and waited > MOST_RUN_QUEUE_FRACTION
