"""What checking a plan with the engine showed."""

from llmprof import units
from llmprof.schema.plan import Plan, PlanVerification


def verification_lines(plan: Plan) -> tuple[str, ...]:
    check = plan.verification
    if check is None:
        return ()
    lines = [_failure(check)]
    if check.process_bytes is not None:
        lines.append(
            f"Process: {units.byte_count(check.process_bytes)} at its peak, with interpreter, "
            "libraries and the detours of loading: not planned."
        )
    return tuple(lines)


def _failure(check: PlanVerification) -> str:
    unit = "batch" if check.varied == "batch" else "prompt tokens"
    predicted = (
        f"predicted first out of memory at {unit} {units.exact(check.predicted_first_failure)}"
    )
    if check.real_first_failure is None:
        return f"{predicted.capitalize()}; {check.reason or 'none was found'}."
    off = check.real_first_failure - check.predicted_first_failure
    return (
        f"{predicted.capitalize()}, really at {units.exact(check.real_first_failure)} "
        f"({'as predicted' if off == 0 else f'{off:+,}'})."
    )
