"""The operators that torch really dispatched, and their FLOPs, on small modules on the CPU."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import flop_registry

from llmprof.engine.kernels.fp8_products import scaled_product
from llmprof.instruments.flop_formulas import formula_table, looks_like_matrix_work
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.run import CountedOp

SHAPE = StepShape(
    phase=Phase.DECODE,
    sequences=(SequenceShape(new_tokens=1, cached_tokens=3),),
    logit_rows=1,
)


def record(work: Callable[[], object], *, inference: bool = True) -> dict[str, CountedOp]:
    with OpRecorder() as recorder, torch.inference_mode(inference):
        recorder.step_begin(SHAPE)
        work()
        recorder.step_end()
    (step,) = recorder.steps()
    return {op.op: op for op in step.ops}


def flops(work: Callable[[], object], *, inference: bool = True) -> int:
    ops = record(work, inference=inference).values()
    assert not [op.op for op in ops if op.missing_formula]
    return sum(op.flops or 0 for op in ops)


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(1,), (4,), (2, 3), ()])
def test_linear_in_any_shape(lead: tuple[int, ...], bias: bool, inference: bool) -> None:
    x, weight = torch.ones(*lead, 5), torch.ones(7, 5)
    added = torch.ones(7) if bias else None
    ops = record(lambda: functional.linear(x, weight, added), inference=inference)
    rows = x.numel() // 5
    assert sum(op.flops or 0 for op in ops.values()) == 2 * rows * 5 * 7
    assert sum(op.calls for op in ops.values() if op.flops) == 1
    assert not [name for name in ops if "view" in name or name in ("aten.t", "aten.linear")]


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_fused_attention_by_keyword_counts_the_full_square(causal: bool, inference: bool) -> None:
    q = torch.ones(1, 12, 64, 64)

    def attend() -> object:
        return functional.scaled_dot_product_attention(query=q, key=q, value=q, is_causal=causal)

    ops = record(attend, inference=inference)
    assert list(ops) == ["aten._scaled_dot_product_flash_attention_for_cpu"]
    assert flops(attend, inference=inference) == 12_582_912


def test_grouped_attention_counts_query_heads() -> None:
    q, kv = torch.ones(2, 6, 3, 8), torch.ones(2, 2, 10, 8)
    count = flops(lambda: functional.scaled_dot_product_attention(q, kv, kv, enable_gqa=True))
    assert count == 4 * 2 * 6 * 3 * 10 * 8


def test_masked_attention_and_the_plain_backend_count_alike() -> None:
    q, mask = torch.ones(2, 5, 9, 4), torch.zeros(9, 9)

    def attend() -> object:
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        plain = flops(attend)
    assert plain == flops(attend) == 12_960


def test_scores_by_the_matrix_operator() -> None:
    q, k = torch.ones(1, 12, 64, 64), torch.ones(1, 12, 64, 64)
    assert flops(lambda: torch.softmax(q @ k.mT, dim=-1) @ k) == 12_582_912


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda: torch.mv(torch.ones(3, 5), torch.ones(5)), 30),
        (lambda: torch.ones(3, 5) @ torch.ones(5), 30),
        (lambda: torch.dot(torch.ones(5), torch.ones(5)), 10),
        (lambda: torch.addmv(torch.ones(3), torch.ones(3, 5), torch.ones(5)), 30),
        (lambda: torch.ones(3, 7).addmm_(torch.ones(3, 5), torch.ones(5, 7)), 210),
        (lambda: torch.bmm(torch.ones(2, 3, 5), torch.ones(2, 5, 7)), 420),
        (lambda: torch.addbmm(torch.ones(3, 7), torch.ones(2, 3, 5), torch.ones(2, 5, 7)), 420),
        (lambda: torch.einsum("bij,bjk->bik", torch.ones(2, 3, 5), torch.ones(2, 5, 7)), 420),
    ],
)
def test_products_of_other_kinds(work: Callable[[], object], expected: int) -> None:
    assert flops(work) == expected


def test_int8_products() -> None:
    x, weight = torch.ones(17, 32, dtype=torch.int8), torch.ones(32, 24, dtype=torch.int8)
    assert flops(lambda: torch._int_mm(x, weight)) == 2 * 17 * 32 * 24
    rows, scales = torch.ones(3, 32, dtype=torch.bfloat16), torch.ones(24, dtype=torch.bfloat16)
    packed = torch.ones(24, 32, dtype=torch.int8)
    assert flops(lambda: torch._weight_int8pack_mm(rows, packed, scales)) == 2 * 3 * 32 * 24


def test_products_in_fp8_have_a_formula() -> None:
    """On tensors without numbers: torch 2.11 has no scales of rows on a CPU."""
    with torch.device("meta"):
        rows, codes = (torch.empty(n, 64, dtype=torch.float8_e4m3fn) for n in (40, 32))
        row_scales, scales, bias = torch.ones(40, 1), torch.ones(32), torch.zeros(32).bfloat16()
    count = flops(lambda: scaled_product(rows, row_scales, codes, scales, bias))
    assert count == 2 * 40 * 32 * 64


def test_int4_product() -> None:
    weight = torch.ones(16, 64, dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(weight, 1)
    scales_and_zeros = torch.ones(64 // 32, 16, 2, dtype=torch.bfloat16)
    rows = torch.ones(3, 64, dtype=torch.bfloat16)

    def multiply() -> object:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(rows, packed, 32, scales_and_zeros)

    assert flops(multiply) == 2 * 3 * 64 * 16


def test_sequences_of_different_lengths_count_their_own_rectangles() -> None:
    """Contexts 1, 2, 3 and 4 are 10 keys, and not 4 times the longest; cached keys by their use."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    formula = formula_table()[torch.ops.torch_attn._varlen_attn]
    query, keys = torch.ones(4, 6, 8), torch.ones(10, 2, 8)
    ends_q = torch.tensor([0, 1, 2, 3, 4], dtype=torch.int32)
    ends_k = torch.tensor([0, 1, 3, 6, 10], dtype=torch.int32)
    assert varlen is not None
    packed = formula(query, keys, keys, ends_q, ends_k, 1, 4, False, out_val=None)
    assert packed == 4 * 10 * 6 * 8
    used = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    by_name = formula(query, keys, keys, ends_q, None, 1, 9, seqused_k=used, out_val=None)
    in_place = formula(
        query, keys, keys, ends_q, None, 1, 9, False, None, None, True, used, out_val=None
    )
    assert by_name == in_place == 4 * 10 * 6 * 8
    if hasattr(torch.ops.torch_attn, "_varlen_attn_out"):  # torch 2.11 has none
        out = formula_table()[torch.ops.torch_attn._varlen_attn_out]
        assert out(query, query, keys, keys, ends_q, ends_k, 1, 4, out_val=None) == 4 * 10 * 6 * 8


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it runs without torch.compile, which refuses to work under a recorder."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)
    q, kv = torch.ones(1, 4, 128, 16), torch.ones(1, 2, 256, 16)
    ops = record(lambda: flex.flex_attention(q, kv, kv, enable_gqa=True))
    assert ops["flex_attention"].flops == 4 * 4 * 128 * 256 * 16
    assert sum(op.flops or 0 for op in ops.values()) == 4 * 4 * 128 * 256 * 16


@torch.library.custom_op("llmprof_test::gemv", mutates_args=())
def gemv(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_matrix_work_without_a_formula_is_reported() -> None:
    op = record(lambda: gemv(torch.ones(3)))["llmprof_test.gemv"]
    assert op.missing_formula
    assert op.flops is None


def test_a_formula_registered_with_torch_is_used() -> None:
    operator = torch.ops.llmprof_test.gemv
    flop_registry[operator] = lambda x, out_val=None: 7 * x.numel()
    try:
        op = record(lambda: gemv(torch.ones(3)))["llmprof_test.gemv"]
    finally:
        del flop_registry[operator]
    assert op.flops == 21
    assert not op.missing_formula


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten.mm", True),
        ("aten._weight_int4pack_mm_for_cpu", True),
        ("aten.addmm_", True),
        ("aten._scaled_mm_v2", True),
        ("flash_attn.fwd", True),
        ("llmprof.gemv", True),
        ("llmprof.matvec", True),
        ("llmprof.decode_attention", True),
        ("llmprof.add_", False),
        ("llmprof.unpack_rows_", False),
        ("aten.convolution", True),
        ("aten.cummax", False),
        ("aten.upsample_linear1d", False),
        ("prims.convert_element_type", False),
        ("aten.comm", False),
        ("aten.silu", False),
    ],
)
def test_names_that_look_like_matrix_work(name: str, expected: bool) -> None:
    assert looks_like_matrix_work(name) is expected


def test_views_and_allocations_are_no_operators() -> None:
    def only_views() -> None:
        x = torch.empty(4, 6)
        x.view(2, 12).t().unsqueeze(0).expand(3, -1, -1).detach()
        torch.split(x.reshape(24), 6)
        x[1:, ::2].chunk(2)
        torch.empty_like(x).unfold(0, 2, 2).permute(1, 0, 2)

    assert record(only_views) == {}


def test_a_composite_with_a_kernel_of_its_own_runs_as_that_kernel() -> None:
    ops = record(lambda: torch.native_channel_shuffle(torch.ones(1, 4, 2, 2), 2))
    assert {name: op.calls for name, op in ops.items()} == {
        "aten.ones": 1,
        "aten.native_channel_shuffle": 1,
    }


def test_elementwise_operators_are_counted_without_flops() -> None:
    x = torch.ones(4)

    def twice_silu_once_copy() -> None:
        functional.silu(functional.silu(x))
        x.copy_(x + 1)

    ops = record(twice_silu_once_copy)
    assert {name: op.calls for name, op in ops.items()} == {
        "aten.silu": 2,
        "aten.add": 1,
        "aten.copy_": 1,
    }
    assert all(op.flops is None and not op.missing_formula for op in ops.values())


def test_operators_belong_to_the_group_that_is_open() -> None:
    x = torch.ones(2, 2)
    with OpRecorder() as recorder:
        x @ x  # before any step: ignored
        for _ in range(2):
            recorder.step_begin(SHAPE)
            recorder.group_begin(OpGroup.LM_HEAD)
            x @ x
            recorder.group_end()
            x @ x
            x @ x
            recorder.step_end()
            x @ x
    assert len(recorder.steps()) == 2
    for step in recorder.steps():
        assert step.shape == SHAPE
        assert {op.group: (op.calls, op.flops) for op in step.ops} == {
            OpGroup.LM_HEAD: (1, 16),
            OpGroup.OTHER: (2, 32),
        }


def test_the_work_gives_the_same_result_and_torchs_registry_stays_as_it_is() -> None:
    before = dict(flop_registry)
    torch.manual_seed(0)
    q = torch.randn(2, 4, 5, 8)
    expected = functional.scaled_dot_product_attention(q, q, q)
    results: list[torch.Tensor] = []
    record(lambda: results.append(functional.scaled_dot_product_attention(q, q, q)))
    assert torch.equal(results[0], expected)
    assert flop_registry == before
