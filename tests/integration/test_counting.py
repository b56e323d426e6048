"""Counts of tiny engines agree with `costs` for every setting of the switches.

All families with all settings: `python -m tests.benchmarks.counting`.
"""

import pytest

from llmprof.architectures.config_json import parse_config
from tests.counting import SWITCHES, count
from tests.tiny_decoders import DECODERS

FAMILIES = {one.name: one for one in DECODERS}
CROSSED = [
    (family, switches)
    for family in ("gemma3", "qwen3_moe", "phi3_window")
    for switches in ("standard attention", "cache fp8, paged", "int8", "continuous")
    if (family, switches) != ("qwen3_moe", "int8")  # refused: experts are kept as floats
]


def check(family: str, switches: str) -> None:
    model = parse_config(FAMILIES[family].config, name=family)
    found = count(model, SWITCHES[switches])
    assert found.flops > 0
    assert found.agrees, found


@pytest.mark.parametrize("switches", SWITCHES)
def test_every_switch(switches: str) -> None:
    check("llama", switches)


@pytest.mark.parametrize(("family", "switches"), CROSSED)
def test_families_with_windows_experts_and_fused_weights(family: str, switches: str) -> None:
    check(family, switches)
