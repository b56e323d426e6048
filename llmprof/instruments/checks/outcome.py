"""The three outcomes of a check."""

from llmprof.schema.diagnosis import Check


def ok(name: str, detail: str) -> Check:
    return Check(name=name, status="ok", detail=detail)


def warn(name: str, detail: str, remedy: str | None = None) -> Check:
    """It works, but figures suffer or something is not checked."""
    return Check(name=name, status="warn", detail=detail, remedy=remedy)


def missing(name: str, detail: str, remedy: str | None = None) -> Check:
    """Something cannot be done here; no remedy where nothing on this machine would help."""
    return Check(name=name, status="missing", detail=detail, remedy=remedy)
