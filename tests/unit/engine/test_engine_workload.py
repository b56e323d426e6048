"""Rounds of fixed work, as a probe sees them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import torch

from llmprof.costs.fixed_work import step_shapes
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload, random_prompts
from llmprof.engine.probe import NullProbe
from llmprof.errors import CapabilityError
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.schema.cost import OpGroup, Phase, StepShape
from llmprof.schema.model import ModelConfig
from tests.published import decoder
from tests.tiny_decoders import on_paper, settings

MODEL = decoder("small", 2, 32, 48, 4, 2, 50, context=64)
NORMED = decoder("normed", 1, 32, 48, 4, 2, 50, qk_norm=True, context=64)
SHAPE: Mapping[str, object] = {"batch": 3, "prompt_tokens": 7, "output_tokens": 5}


@dataclass
class WatchingProbe:
    """Keeps the order of everything that it is told, and insists that groups never nest."""

    shapes: list[StepShape] = field(default_factory=list)
    groups: list[list[OpGroup]] = field(default_factory=list)
    inside: list[object] = field(default_factory=list)

    def step_begin(self, shape: StepShape) -> None:
        assert self.inside == []
        self.inside.append(shape)
        self.shapes.append(shape)
        self.groups.append([])

    def step_end(self) -> None:
        assert self.inside == [self.shapes[-1]]
        self.inside.pop()

    def group_begin(self, group: OpGroup) -> None:
        assert self.inside == [self.shapes[-1]]
        self.inside.append(group)
        self.groups[-1].append(group)

    def group_end(self) -> None:
        assert self.inside[1:] == [self.groups[-1][-1]]
        self.inside.pop()


def workload(model: ModelConfig = MODEL, /, **groups: Mapping[str, object]) -> EngineWorkload:
    config = settings(weights={"source": "random"}, **groups)
    engine = Engine.load(
        on_paper(model), config, device="cpu", threads=1, host_available_bytes=2**33
    )
    return EngineWorkload(engine, config)


def summary(shape: StepShape) -> tuple[Phase, int, int, int, int]:
    (sequence,) = shape.sequences
    return (
        shape.phase,
        sequence.count,
        sequence.new_tokens,
        sequence.cached_tokens,
        shape.logit_rows,
    )


def test_prefill_gives_the_first_token_and_each_decode_step_one_more() -> None:
    assert [summary(shape) for shape in step_shapes(settings(workload=SHAPE))] == [
        (Phase.PREFILL, 3, 7, 0, 3),
        (Phase.DECODE, 3, 1, 7, 3),
        (Phase.DECODE, 3, 1, 8, 3),
        (Phase.DECODE, 3, 1, 9, 3),
        (Phase.DECODE, 3, 1, 10, 3),
    ]


def test_without_a_cache_a_decode_step_brings_the_whole_context() -> None:
    shapes = step_shapes(settings(workload=SHAPE, kv_cache={"layout": "none"}))
    assert [summary(shape)[1:4] for shape in shapes] == [(3, new, 0) for new in (7, 8, 9, 10, 11)]
    assert [shape.phase for shape in shapes] == [Phase.PREFILL, *[Phase.DECODE] * 4]


def test_a_synthetic_context_starts_with_the_same_decode_step() -> None:
    filled = step_shapes(settings(workload={**SHAPE, "context": "synthetic"}))
    assert filled == step_shapes(settings(workload=SHAPE))[1:]


@pytest.mark.parametrize(("cap", "steps"), [(2, 3), (4, 5), (99, 5)])
def test_decode_steps_are_capped(cap: int, steps: int) -> None:
    shapes = step_shapes(settings(workload=SHAPE, measure={"steps_per_round": cap}))
    assert len(shapes) == steps


def test_a_single_output_token_is_all_prefill() -> None:
    work = workload(workload={**SHAPE, "output_tokens": 1})
    assert work.phases == (Phase.PREFILL,)
    work.lead_in()
    assert work.run_round(NullProbe()) == work.run_round(NullProbe())


@pytest.mark.parametrize("layout", ["none", "contiguous", "paged"])
@pytest.mark.parametrize("context", ["real", "synthetic"])
def test_every_round_announces_the_same_steps_and_gives_the_same_tokens(
    layout: str, context: str
) -> None:
    if (layout, context) == ("none", "synthetic"):
        return
    groups: dict[str, dict[str, object]] = {
        "workload": {**SHAPE, "context": context},
        "kv_cache": {"layout": layout},
    }
    work = workload(**groups)
    first, second = WatchingProbe(), WatchingProbe()
    tokens = work.run_round(first)
    work.lead_in()
    assert work.run_round(second) == tokens
    assert first.shapes == second.shapes == list(step_shapes(settings(**groups)))
    assert first.inside == []


def test_attention_and_cache_settings_do_not_change_the_tokens() -> None:
    fp32 = {"source": "random", "dtype": "fp32"}
    hashes = set()
    for kind in ("standard", "flash"):
        for layout in ("none", "contiguous", "paged"):
            config = settings(
                weights=fp32,
                attention={"kind": kind},
                kv_cache={"layout": layout},
                workload=SHAPE,
            )
            engine = Engine.load(
                on_paper(MODEL), config, device="cpu", threads=1, host_available_bytes=2**33
            )
            hashes.add(EngineWorkload(engine, config).run_round(NullProbe()))
    assert len(hashes) == 1


def test_another_seed_is_another_prompt() -> None:
    hashes = {workload(workload={**SHAPE, "seed": seed}).run_round(NullProbe()) for seed in (0, 1)}
    assert len(hashes) == 2


def test_groups_of_a_step_in_order() -> None:
    probe = WatchingProbe()
    workload(workload=SHAPE).run_round(probe)
    layer = [
        OpGroup.NORM,
        OpGroup.QKV_PROJECTION,
        OpGroup.ROPE,
        OpGroup.KV_APPEND,
        OpGroup.ATTENTION,
        OpGroup.OUTPUT_PROJECTION,
        OpGroup.NORM,
        OpGroup.GATE_UP_PROJECTION,
        OpGroup.ACTIVATION,
        OpGroup.DOWN_PROJECTION,
    ]
    end = [OpGroup.NORM, OpGroup.LM_HEAD, OpGroup.SAMPLING]
    assert probe.groups == [[OpGroup.EMBEDDING, *layer, *layer, *end]] * 5


def test_head_norms_are_norm_and_no_cache_appends_nothing() -> None:
    probe = WatchingProbe()
    workload(NORMED, workload=SHAPE, kv_cache={"layout": "none"}).run_round(probe)
    assert probe.groups[0].count(OpGroup.NORM) == 4
    assert OpGroup.KV_APPEND not in probe.groups[0]


def test_prompts_are_random_ids_of_the_whole_vocabulary() -> None:
    prompts = random_prompts(50, 4, 200, seed=0)
    assert prompts.shape == (4, 200)
    assert set(prompts.flatten().tolist()) == set(range(50))
    assert not any(torch.equal(a, b) for a, b in pairwise(prompts))


def test_needs_of_a_decode_step() -> None:
    needs = workload(workload=SHAPE).needs
    hidden, inner, vocab, kv = 32, 48, 50, 16
    per_layer = (hidden + 2 * kv) * hidden + hidden * hidden + 3 * inner * hidden + 2 * hidden
    embedding_rows, final_norm, head = 3 * hidden, hidden, vocab * hidden
    weights = 2 * (2 * per_layer + embedding_rows + final_norm + head)
    cached = 2 * 2 * 2 * kv * 3 * 10
    assert needs.working_set_bytes == weights + cached
    assert needs.compute_dtype == "bf16"
    assert needs.skinny_rows == 3
    assert needs.skinny_shapes == ((64, 32), (32, 32), (96, 32), (32, 48), (50, 32))


def test_a_step_without_a_cache_is_not_skinny() -> None:
    needs = workload(workload=SHAPE, kv_cache={"layout": "none"}).needs
    assert (needs.skinny_rows, needs.skinny_shapes) == (None, ())


def test_what_ran() -> None:
    work = workload(workload={**SHAPE, "batch": 1}, attention={"kind": "standard"})
    found = work.describe()
    token_bytes = 2 * 2 * 2 * 8 * 2
    assert found.kv_bytes_reserved == 12 * token_bytes
    assert found.kv_bytes_used == 11 * token_bytes
    assert found.compute_dtype == found.kv_dtype == "bf16"
    assert (found.threads, found.random_weights) == (1, True)
    assert found.kv_bytes_per_token == token_bytes
    assert set(found.kernels) >= {
        "projections.prefill",
        "projections.decode",
        "lm_head",
        "kv_append",
        "attention",
        "norm",
        "sampling",
    }
    assert "softmax" in found.kernels["attention"]
    fused = workload(workload=SHAPE).describe().kernels
    assert "softmax" not in fused["attention"]
    assert "decode" in fused["attention.decode"]


@pytest.mark.parametrize(
    ("kv", "reserved_tokens"),
    [
        ({"layout": "contiguous"}, 3 * 12),
        ({"layout": "paged", "block_tokens": 8}, 3 * 16),
        ({"layout": "paged", "block_tokens": 32}, 3 * 32),
    ],
)
def test_how_full_the_cache_is_in_every_step(kv: dict[str, object], reserved_tokens: int) -> None:
    token_bytes = 2 * 2 * 2 * 8 * 2
    uses = [use.kv for use in workload(workload=SHAPE, kv_cache=kv).round_details().steps]
    assert [use.reserved_bytes for use in uses if use] == 5 * [reserved_tokens * token_bytes]
    assert [use.used_bytes for use in uses if use] == [
        3 * tokens * token_bytes for tokens in (7, 8, 9, 10, 11)
    ]
    assert all(use and use.wasted_bytes == use.reserved_bytes - use.used_bytes for use in uses)


def test_a_budget_that_does_not_hold_the_batch_is_refused() -> None:
    kv = {"layout": "paged", "memory_bytes": 2 * 16 * 128}
    with pytest.raises(CapabilityError, match="a batch of 3 sequences of 12 tokens reserves"):
        workload(workload=SHAPE, kv_cache=kv)


@pytest.mark.parametrize(
    ("kv", "more"),
    [
        ({"layout": "contiguous"}, [9, 0, 0, 0]),
        ({"layout": "paged", "block_tokens": 8}, [9, 9, 0, 0]),
    ],
)
def test_a_step_that_sets_its_positions_anew_starts_nine_operators_more(
    kv: dict[str, object], more: list[int]
) -> None:
    """Seven prompt tokens: the first decode step has position 7, and the next one opens a block of 8."""
    recorder = OpRecorder()
    one = workload(workload=SHAPE, kv_cache=kv)
    with recorder:
        one.run_round(recorder)
    _, *decodes = [sum(op.calls for op in step.ops) for step in recorder.steps()]
    assert [calls - decodes[-1] for calls in decodes] == more
