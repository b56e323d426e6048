"""The words of a page, each explained where it stands and once more at the end."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from markupsafe import Markup, escape


class Term(NamedTuple):
    name: str
    meaning: str
    seen_as: tuple[str, ...] = ()
    """Other forms in which headers and answers use it, in lower case."""


GLOSSARY: Final = (
    Term(
        "step",
        "One engine iteration: one scheduled batch, one forward pass, one sampled token per sequence.",
    ),
    Term(
        "prefill, decode, mixed",
        "Prefill reads the prompt, many tokens in one step. Decode generates: one token per sequence "
        "and step, and every step reads every weight and the whole KV cache again. A mixed step "
        "serves some sequences of each kind.",
        ("prefill", "decode", "mixed"),
    ),
    Term(
        "TTFT",
        "Time to the first token, from the arrival of the request: its time in the queue and its prefill.",
    ),
    Term(
        "TPOT",
        "Time per output token after the first: (end-to-end latency - TTFT) / (output tokens - 1).",
    ),
    Term("ITL", "Inter-token latency: the time between one output token and the next."),
    Term(
        "queue",
        "From the arrival of a request to the first step that works on it.",
    ),
    Term(
        "arithmetic intensity",
        "FLOP per byte moved. A range, since what one op hands to the next (activations, scores, "
        "logits, copies) may stay in cache.",
        ("flop/byte",),
    ),
    Term(
        "ceiling, roof",
        "A ceiling is a limit measured on this machine. The roof of an op is its fixed cost plus the "
        "longer of its bytes at the read ceiling and its FLOP at the matmul ceiling.",
        ("roof", "attainable"),
    ),
    Term("ridge point", "The intensity at which the memory and the compute ceiling meet."),
    Term(
        "roof fraction",
        "Least time of bytes and FLOP at the ceilings, without fixed cost, over measured time; each "
        "round against the readings beside it. Points, ledger and sentences use the ceilings that give "
        "the same fraction at the median step. Above 100 % means that a count or a ceiling is wrong: "
        "it is shown, never clipped.",
        ("of its roof",),
    ),
    Term(
        "MFU, MBU",
        "Achieved FLOP/s over the datasheet's dense peak of the dtype, and weights and KV per second "
        "over its memory bandwidth: comparable between machines. Absent where the datasheet table "
        "does not know the device.",
        ("mfu", "mbu"),
    ),
    Term(
        "ledger",
        "The split of a step's time into parts that are measured or computed on their own; they sum "
        "to the step.",
    ),
    Term(
        "loss",
        "Time of an op above its roof: what a better kernel could give back.",
        ("loss interval",),
    ),
    Term(
        "fixed cost",
        "What an op or kernel costs whatever its size: dispatch and launch, measured with empty ones.",
    ),
    Term(
        "host",
        "The step outside every op: interpreter, dispatch, scheduling.",
    ),
    Term(
        "hidden",
        "Work that costs no time now because something longer runs beside it; a change can bring it "
        "to the surface.",
    ),
    Term(
        "memory side, compute side",
        "Where the longer link of an op lies. A step is on the side that most of its time belongs to; "
        "a mixture is said with its shares.",
        ("memory side", "compute side", "mixture", "side", "what limits"),
    ),
    Term(
        "elementwise",
        "Work in cache: norms, rotations, activations, appends. It multiplies no matrices, and less "
        "of what it touches must cross memory than a cache may hold, so it is on neither side. Where "
        "its fixed cost is more than half of its time it counts as fixed cost.",
    ),
    Term(
        "saturated, unsaturated, kernel-limited",
        "How busy the limiting link is while it limits: at least 80 %, 60 to 80 %, below 60 % of its "
        "ceiling. Only ops with a link count. Saturated: only fewer bytes or FLOP help. "
        "Kernel-limited: a better kernel helps.",
        ("saturated", "unsaturated", "kernel-limited", "how saturated"),
    ),
    Term(
        "inconclusive",
        "An answer: the machine was shared, the clock moved, or the intervals straddle the decision. "
        "The reasons stand beside it.",
    ),
    Term(
        "lever, tier",
        "A switch that could help. Its gain is predicted by computing the ledger again; tier C has a "
        "measured roof of every kernel that changes, B has not.",
        ("lever", "tier"),
    ),
    Term(
        "skinny matmul",
        "The engine's own matmul kernel with the few rows of a decode step, streaming its weights "
        "from memory.",
    ),
    Term(
        "KV cache",
        "Keys and values of the tokens so far, kept so that they are not computed again. Reserved: "
        "set aside for sequences, whether filled or not.",
    ),
    Term(
        "clean, grouped, counting pass",
        "Clean rounds are timed with nothing attached. Grouped rounds time each op group, and are "
        "scaled to the clean ones. The counting pass lists the operators.",
    ),
    Term(
        "interval",
        "Of the median over rounds. Its confidence is the true one for that many rounds, and is "
        "written beside it; where many intervals share a statement, it is that of the weakest.",
    ),
    Term(
        "own cost",
        "What llmprof itself adds to a step that it times: its calls times what each takes, measured.",
    ),
    Term(
        "counted, measured",
        "Counted: from shapes alone. Measured: with a clock on this machine.",
    ),
)

_MEANINGS: Final[Mapping[str, str]] = {
    form: term.meaning for term in GLOSSARY for form in (term.name.lower(), *term.seen_as)
}


def glossed(text: str) -> Markup:
    """`text` as HTML, explained on hover where all of it is a word of the glossary."""
    bare = text.strip("●◐○? ").lower()
    meaning = _MEANINGS.get(bare)
    if meaning is None:
        return escape(text)
    return Markup('<abbr title="{}">{}</abbr>').format(meaning, text)
