"""The report as one JSON document, raw samples included."""

from llmprof.schema.report import Report


def render_json(report: Report) -> bytes:
    """UTF-8, two spaces of indentation; `llmprof schema report` describes it."""
    return (report.model_dump_json(indent=2) + "\n").encode()
