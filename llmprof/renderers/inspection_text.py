"""The model on paper, on one screen of a terminal."""

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.whole_table import fits, print_table
from llmprof.renderers.wording import one_line
from llmprof.schema.cost import OpGroup, StepCost
from llmprof.schema.inspection import CacheFigures, Inspection
from llmprof.schema.layers import LayerShape
from llmprof.schema.model import ModelConfig

_NONE = "-"
_GROUP = "op group"
_PHASES = ("prefill", "decode")
_OTHERS = ("\nbytes", "\nFLOP/B")
_FIGURES = 3
"""Of a phase: FLOP, bytes, FLOP/B."""


def render_inspection(inspection: Inspection, console: Console) -> None:
    """Print parameters, bytes, cache per token, and the work of a prefill and a decode step."""
    for line in wrap_all(_facts(inspection), console.width):
        console.print(line)
    _print_work(inspection, console)
    for line in wrap_all(_notes(inspection), console.width):
        console.print(line)


def _facts(inspection: Inspection) -> list[Text]:
    model = inspection.model
    shape = f"{model.num_hidden_layers} layers, hidden {model.hidden_size}, {_attention(model)}"
    return [
        Text.assemble((one_line(model.name), "bold"), f"  {one_line(model.model_type)}, {shape}"),
        Text(),
        _fact("parameters", _parameters(inspection)),
        *_active(inspection),
        *_apart(inspection),
        _fact("weights", _weights(inspection)),
        _fact("KV per token", f"{units.exact(inspection.kv_bytes_per_token)} bytes"),
        Text(f"  {inspection.kv_formula}"),
        *_cache(inspection),
        *_device(inspection),
        Text(),
        Text(_question(inspection), "bold"),
    ]


def _attention(model: ModelConfig) -> str:
    """Heads of plain models; of others the kinds of layers and how many of each there are."""
    heads = f"{model.num_attention_heads} query heads on {model.num_key_value_heads} KV heads"
    if not model.layer_kinds:
        return heads
    counts: dict[str, int] = {}
    for layer, count in model.kinds:
        kind = _kind(layer)
        counts[kind] = counts.get(kind, 0) + count
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def _kind(layer: LayerShape) -> str:
    attention, mlp = layer.attention, layer.mlp
    match attention.kind:
        case "latent":
            found = "latent attention"
        case "linear":
            found = "linear attention"
        case "softmax":
            window = f" (window {attention.window})" if attention.window else ""
            shared = " (shared cache)" if attention.shares_cache else ""
            found = f"{attention.query_heads} heads on {attention.kv_heads}{window}{shared}"
    if mlp.kind == "experts":
        found += f" with {mlp.experts_per_token} of {mlp.num_experts} experts"
    return found


def _active(inspection: Inspection) -> list[Text]:
    active = inspection.parameters_active
    if active.with_embedding_and_head == inspection.parameters_total:
        return []
    shown = (
        f"{units.exact(active.with_embedding_and_head)} per token; without embedding "
        f"{units.exact(active.without_embedding)}; without embedding and head "
        f"{units.exact(active.without_embedding_and_head)}"
    )
    return [_fact("  active", shown)]


def _apart(inspection: Inspection) -> list[Text]:
    """Parts that the total leaves out."""
    parts = []
    if inspection.parameters_mtp:
        parts.append(f"multi-token prediction {units.exact(inspection.parameters_mtp)}")
    if inspection.parameters_vision:
        parts.append(f"image encoder {units.exact(inspection.parameters_vision)}")
    if inspection.router_corrections:
        corrections = units.exact(inspection.router_corrections)
        parts.append(
            f"{corrections} router corrections (e_score_correction_bias), stored as buffers"
        )
    return [_fact("  apart", "; ".join(parts))] if parts else []


def _cache(inspection: Inspection) -> list[Text]:
    cache = inspection.kv_cache
    if not cache.context_tokens:
        return []
    ideal = f"{units.byte_count(cache.ideal_bytes)} ({units.decimal_bytes(cache.ideal_bytes, 4)})"
    allocated = cache.engine_allocated_bytes
    kept = f"; every layer in full {units.byte_count(allocated)}" if _saved(cache) else ""
    states = f"; states {units.decimal_bytes(cache.state_bytes)}" if cache.state_bytes else ""
    return [
        _fact(
            "KV at context", f"{units.exact(cache.context_tokens)} tokens: {ideal}{kept}{states}"
        ),
        Text(f"  {cache.formula}"),
    ]


def _saved(cache: CacheFigures) -> bool:
    """Windows hold less than every token."""
    return cache.block_rounded_bytes < cache.engine_allocated_bytes


def _device(inspection: Inspection) -> list[Text]:
    device = inspection.device
    if device.devices == 1:
        return []
    shown = (
        f"{units.decimal_bytes(device.weight_bytes)} weights, "
        f"{units.exact(device.kv_bytes_per_token)} bytes KV per token, on each of {device.devices}"
    )
    return [_fact("per device", shown)]


def _fact(name: str, fact: str) -> Text:
    return Text.assemble((f"{name:14}", "bold"), fact)


def _parameters(inspection: Inspection) -> str:
    tied = ", which is also the head" if inspection.model.tie_word_embeddings else ""
    embedding = f"{units.exact(inspection.parameters_embedding)} in the embedding table{tied}"
    return f"{units.exact(inspection.parameters_total)} ({embedding})"


def _weights(inspection: Inspection) -> str:
    total = inspection.weight_bytes
    dtypes = ", ".join(
        f"{one_line(dtype)} {units.decimal_bytes(stored)}"
        for dtype, stored in sorted(inspection.weight_dtypes.items(), key=lambda item: -item[1])
    )
    return f"{units.decimal_bytes(total)} = {units.byte_count(total)} ({dtypes})"


def _question(inspection: Inspection) -> str:
    prefill, decode = inspection.prefill, inspection.decode
    batch = f"{inspection.batch} x " if inspection.batch > 1 else ""
    return (
        f"prefill of {batch}{units.exact(prefill.tokens)} tokens; decode step of {batch}1 token "
        f"at {units.exact(decode.context_tokens)} cached"
    )


def _print_work(inspection: Inspection, console: Console) -> None:
    """Both phases side by side where they have room, else one after the other."""
    rows = _work(inspection)
    columns = [_GROUP, *(name for phase in _PHASES for name in (f"{phase}\nFLOP", *_OTHERS))]
    if fits(columns, [[str(cell) for cell in row] for row in rows], console.width):
        print_table(console, columns, rows)
        return
    for place, phase in enumerate(_PHASES):
        console.print(Text(phase, "bold"))
        first = 1 + _FIGURES * place
        own = [[row[0], *row[first : first + _FIGURES]] for row in rows]
        print_table(console, (_GROUP, "FLOP", *(name.strip() for name in _OTHERS)), own)


def _work(inspection: Inspection) -> list[list[Text]]:
    """Per op group its name, then three figures of the prefill and three of the decode step."""
    steps = (inspection.prefill_cost, inspection.decode_cost)
    rows = []
    for group in OpGroup:
        parts = [step.of_groups(group) for step in steps]
        if any(part.ops for part in parts):
            rows.append([*map(Text, (group.label, *_cells(*parts)))])
    return [*rows, [Text(cell, "bold") for cell in ("total", *_cells(*steps))]]


def _cells(*parts: StepCost) -> tuple[str, ...]:
    return tuple(cell for part in parts for cell in _three_cells(part))


def _three_cells(part: StepCost) -> tuple[str, str, str]:
    required, intensity = part.traffic.required, part.intensity_flops_per_byte
    return (
        units.si(part.flops, "") if part.flops else _NONE,
        units.decimal_bytes(required) if required else _NONE,
        units.significant(intensity) if intensity else _NONE,
    )


def _notes(inspection: Inspection) -> list[Text]:
    prefill, decode = inspection.prefill, inspection.decode
    spilled = [
        units.decimal_bytes(figures.bytes_with_activations - figures.bytes)
        for figures in (prefill, decode)
    ]
    notes = [
        f"Prefill: {units.flops(prefill.flops_causal)} causal (exact), "
        f"{units.flops(prefill.flops_dense)} with the full square of attention.",
        "Bytes are the least that must move: weights, KV cache, scores, logits; of the embedding "
        f"table its rows. Activations come on top where caches do not hold them: up to "
        f"{spilled[0]} in the prefill, {spilled[1]} in a decode step.",
    ]
    for caveat in inspection.caveats:
        remedy = f" {caveat.remedy}" if caveat.remedy else ""
        notes.append(f"Note: {one_line(caveat.message)}.{remedy}")
    return [Text(), *(Text(note) for note in notes)]
