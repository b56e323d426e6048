"""Where a workload can be observed. The default observer does nothing."""

from typing import Protocol

from llmprof.schema.cost import OpGroup, StepShape


class Probe(Protocol):
    """Told about each step and op group, in order, on the host thread.

    A step runs from the scheduler's decision to the sampled token; groups never nest. A workload
    calls the group hooks always, so an observer that does not want them makes them empty.
    """

    def step_begin(self, shape: StepShape) -> None: ...
    def step_end(self) -> None: ...
    def group_begin(self, group: OpGroup) -> None: ...
    def group_end(self) -> None: ...


def wants_groups(probe: Probe) -> bool:
    """Whether the group hooks do something; an observer that leaves them empty may say so.

    `wants_groups = False` in its class lets a recorded step run without coming back in between.
    """
    return bool(getattr(probe, "wants_groups", True))


class NullProbe:
    """Observes nothing."""

    wants_groups = False

    def step_begin(self, shape: StepShape) -> None:
        pass

    def step_end(self) -> None:
        pass

    def group_begin(self, group: OpGroup) -> None:
        pass

    def group_end(self) -> None:
        pass
