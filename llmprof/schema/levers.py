"""What could help a run, what could not, and where its limits change sides."""

from pydantic import NonNegativeInt

from llmprof.schema.cost import Phase
from llmprof.schema.prediction import Interval, SettingChange, Tier
from llmprof.schema.record import Record
from llmprof.schema.verdict import Limit


class Lever(Record):
    """One switch, and what it is predicted to give."""

    change: SettingChange
    label: str
    phase: Phase
    """The phase that gains most."""
    gain: Interval
    """Tokens per second of that phase, over those of the run: all sequences together."""
    step_speedup: Interval
    """Base step over predicted step: below 1 for a batch that gains by its size."""
    other_phase_gain: Interval | None
    """The same of the run's other phase."""
    tier: Tier
    then: Limit
    """What the largest share of the step goes to afterwards."""
    then_share: float
    sentence: str


class NoLever(Record):
    """A switch that cannot help, or that cannot be judged."""

    change: SettingChange
    label: str
    reason: str


class Crossing(Record):
    """A size at which a limit changes sides."""

    name: str
    value: NonNegativeInt | None
    """Null where it is never reached within what the model or the memory allows."""
    sentence: str


class Levers(Record):
    helpful: tuple[Lever, ...]
    """By gain, largest first."""
    unhelpful: tuple[NoLever, ...]
    crossings: tuple[Crossing, ...]
