"""Errors for the person at the terminal: what happened, where, what to do, and the exit code.

LlmprofError
├── InputError                 2   missing or corrupt file, bad field, unknown key, unwritable output
├── NotComparableError         4   two runs that may not be compared
├── UnstableMachineError       5   too many contended or throttled rounds
├── MeasurementFailedError     6   out of memory, crash, wrong tokens
└── CapabilityError            7   unsupported architecture, dtype or switch
    └── DoesNotFitError        7   model larger than memory
"""

from typing import ClassVar


class LlmprofError(Exception):
    """Base of every error that is printed as one line; `remedy` says what to do."""

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def line(self) -> str:
        """One line, whatever the message holds."""
        text = f"{self.message}. {self.remedy}" if self.remedy else self.message
        return " ".join(text.split())


class InputError(LlmprofError):
    exit_code = 2


class NotComparableError(LlmprofError):
    exit_code = 4


class UnstableMachineError(LlmprofError):
    exit_code = 5


class MeasurementFailedError(LlmprofError):
    exit_code = 6


class CapabilityError(LlmprofError):
    exit_code = 7


class DoesNotFitError(CapabilityError):
    """Memory that is free now does not hold it; what else is loaded may be the reason."""
