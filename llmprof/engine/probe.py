"""Where a workload can be observed. The default observer does nothing."""

from typing import Protocol, TypeGuard

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


class OpProbe(Probe, Protocol):
    """Also told about each kernel of the engine's own, wherever it is started from.

    Operators of torch are seen by torch's own means. `name` is as torch spells it, `llmprof.matvec`;
    ops may nest, and then the outermost is what runs.
    """

    def op_begin(self, name: str) -> None: ...
    def op_end(self) -> None: ...


def wants_ops(probe: Probe) -> TypeGuard[OpProbe]:
    """Whether it has the hooks of an `OpProbe`: a replay then goes kernel by kernel."""
    return bool(getattr(probe, "wants_ops", False))


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
