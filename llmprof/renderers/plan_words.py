"""The sentences of a plan, the same in the terminal, the page and the Markdown."""

from llmprof import units
from llmprof.renderers.wording import one_line
from llmprof.schema.measurement import Source
from llmprof.schema.plan import Plan, PlanPoint


def title(plan: Plan) -> str:
    many = f"{plan.devices} x " if plan.devices > 1 else ""
    where = one_line(plan.rates.name) if plan.rates else "a device"
    memory = units.byte_count(plan.memory.device_bytes)
    return f"{one_line(plan.model.name)} on {many}{where} with {memory}"


def headline(plan: Plan) -> str:
    """The answer at the reference context."""
    tokens = units.exact(plan.reference_context_tokens)
    base = plan.effects[0]
    if base.sequences:
        text = f"{_sequences(base.sequences)} of {tokens} tokens fit"
        return f"{text}{_speed_of(plan)}."
    room = plan.memory.kv_room_bytes
    if room < 0:
        over = units.byte_count(-room)
        return f"It does not fit: weights and activations take {over} too much.{_would_fit(plan)}"
    each = units.byte_count(base.sequence_bytes or 0)
    return f"Not one sequence of {tokens} tokens fits: it takes {each}, and {units.byte_count(room)} is left.{_would_fit(plan)}"


def _would_fit(plan: Plan) -> str:
    """The first change of the plan's list with which a sequence fits; empty where none does."""
    for effect in plan.effects[1:]:
        if effect.sequences:
            return f" With {effect.change} {_sequences(effect.sequences)} would fit."
    return ""


def _speed_of(plan: Plan) -> str:
    decode = plan.effects[0].decode
    if decode is None:
        return ""
    cost = decode.cost_per_million_tokens
    priced = "" if cost is None else f", {units.significant(cost)} per million"
    return (
        f"; at the roof they decode {units.significant(decode.output_tokens_per_s)} output tok/s"
        f"{priced} (predicted)"
    )


def _sequences(count: int) -> str:
    return f"{units.exact(count)} sequence{'' if count == 1 else 's'}"


def memory_line(plan: Plan) -> str:
    memory = plan.memory
    parts = [
        f"{units.byte_count(memory.device_bytes)} device ({_origin(memory.device_source)})",
        f"- {units.byte_count(memory.reserve_bytes)} reserve",
        f"- {units.byte_count(memory.weight_bytes)} weights ({plan.weight_format})",
        f"- {units.byte_count(memory.activation_bytes)} activations",
        f"= {_signed(memory.kv_room_bytes)} for the KV cache ({plan.kv_dtype})",
    ]
    return " ".join(parts)


def _origin(source: Source) -> str:
    return "datasheet" if source is Source.DATASHEET else "as given"


def _signed(value: float) -> str:
    return f"-{units.byte_count(-value)}" if value < 0 else units.byte_count(value)


def rates_line(plan: Plan) -> str | None:
    rates = plan.rates
    if rates is None:
        return None
    peak = rates.flops_per_s.get(plan.compute_dtype)
    dense = f", {plan.compute_dtype} {units.flops_per_s(peak)}" if peak else ""
    origin = f" ({one_line(rates.document)})" if rates.document else " (as given)"
    return f"{one_line(rates.name)}: {units.bytes_per_s(rates.read_bytes_per_s)}{dense}{origin}"


def asked_line(plan: Plan, point: PlanPoint) -> str:
    budget = plan.memory.device_bytes - plan.memory.reserve_bytes
    verdict = "fit" if point.fits else "do NOT fit"
    return (
        f"{_sequences(point.sequences)} of {units.exact(point.context_tokens)} tokens {verdict}: "
        f"{units.byte_count(point.needed_bytes)} of {units.byte_count(budget)} without the reserve."
    )
