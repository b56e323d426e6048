"""How two arms took turns, what they wrote, and what was predicted: sentences for terminal, page and Markdown."""

from llmprof import units
from llmprof.schema.comparison import Arrangement, LiveComparison
from llmprof.schema.confirmation import OutputComparison

_ARRANGEMENTS = {
    Arrangement.ONE_PROCESS: "A B B A in one process",
    Arrangement.OWN_PROCESSES: "A B B A, each turn loaded in a process of its own (memory does not "
    "hold both)",
}


def arrangement_text(live: LiveComparison) -> str:
    """How, and over how many pairs, the arms took turns."""
    pairs = f"{live.num_pairs} pairs"
    if live.num_disturbed:
        left_out = live.num_used < live.num_pairs
        fate = "left out" if left_out else "used all the same, since too few others remain"
        pairs += f", {live.num_disturbed} of them disturbed and {fate}"
    return f"measured in turns, {_ARRANGEMENTS[live.arrangement]}: {pairs}"


def written_outputs_text(outputs: OutputComparison) -> str:
    """Whether both arms wrote the same tokens, and where they part."""
    if outputs.same is None:
        return f"tokens not compared: {outputs.reason or 'no reason given'}"
    if outputs.same:
        return f"both gave the same {outputs.tokens} tokens"
    share = units.percent(outputs.equal_tokens / outputs.tokens)
    return (
        f"the tokens differ from output token {outputs.first_difference} on; {outputs.equal_tokens} of "
        f"{outputs.tokens} agree ({share})"
    )


def prediction_text(live: LiveComparison) -> str:
    """What the prediction rests on, or why there is none."""
    if live.confirmation is None:
        return f"not predicted: {live.not_predicted or 'no reason given'}"
    made = live.confirmation
    return (
        f"predicted at {made.predicted_at:%H:%M:%S} UTC from a run of the baseline (tier "
        f"{made.prediction.tier.value}), measured after that"
    )
