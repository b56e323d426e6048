"""How a decode step is started: op by op from Python, or recorded once and replayed."""

from llmprof.engine.execution.runner import EagerRunner, StepRunner, make_runner

__all__ = ["EagerRunner", "StepRunner", "make_runner"]
