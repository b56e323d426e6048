"""One measurement from loading to counting, as a worker process makes it for its parent."""

from llmprof.errors import MeasurementFailedError
from llmprof.experiments.arm_messages import WholeRun
from llmprof.experiments.output_tokens import OutputTokens
from llmprof.profiler import profile
from llmprof.schema.settings import RunConfig
from llmprof.session import Session


def whole_run(config: RunConfig) -> WholeRun:
    """Measure `config`, and keep what it wrote.

    Raises:
        LlmprofError: what `profile` raises.
        MeasurementFailedError: it failed in a later round.
    """
    written: list[OutputTokens] = []

    def rounds(session: Session) -> None:
        session.measure_rounds()
        written.append(OutputTokens.of(session))

    record = profile(config, rounds=rounds)
    if record.status != "complete":
        raise MeasurementFailedError(record.status_reason or "the run did not end")
    return WholeRun(record=record, output_tokens=written[0].ids)
