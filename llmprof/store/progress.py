"""How a long command tells where it stands, whoever is listening."""

from typing import Protocol


class Progress(Protocol):
    """Told about stages and events between measurements, never inside one."""

    def update(self, stage: str, done: int, total: int) -> None:
        """`stage` has finished `done` of `total` parts; a new stage starts at 0."""

    def note(self, text: str) -> None:
        """Report one event worth a line."""


class NullProgress:
    """Tells nobody."""

    def update(self, stage: str, done: int, total: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass
