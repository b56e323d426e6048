"""One question to NVML at a time: each answer stands alone, each failure leaves its reason."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

_T = TypeVar("_T")

_NOT_AVAILABLE: Final = (2**32 - 1, 2**64 - 1)
"""What NVML writes into an unsigned field that it cannot fill (NVML_VALUE_NOT_AVAILABLE)."""


@dataclass(slots=True)
class Questions:
    """Asks NVML one field at a time and keeps the reason of each failure."""

    errors: tuple[type[Exception], ...]
    missing: dict[str, str] = field(default_factory=dict)

    def ask(self, name: str, *calls: Callable[[], _T]) -> _T | None:
        """The first call that answers; the reason kept is that of the first that failed."""
        for call in calls:
            try:
                answer = call()
            except self.errors as error:
                self.missing.setdefault(name, str(error))
                continue
            if answer in _NOT_AVAILABLE:
                self.missing.setdefault(name, "the driver has no value for it")
                continue
            self.missing.pop(name, None)
            return answer
        return None
