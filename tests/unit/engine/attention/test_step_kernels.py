"""Libraries that attend for whole steps, with stand-ins that check what they are given."""

import inspect
import math
import sys
from collections.abc import Sequence

import pytest
import torch

from llmprof.engine.attention import AttentionNeeds, FlashAttention, ScoreRule, StandardAttention
from llmprof.engine.attention.flashinfer_kernel import FlashInferKernel
from llmprof.engine.attention.flashinfer_pages import step_pages
from llmprof.engine.attention.kernel_trial import trial_trouble
from llmprof.engine.attention.score_rule import PLAIN
from llmprof.engine.attention.step_kernels import StepKernel
from llmprof.engine.attention.varlen_api import VarlenApi, find_varlen
from llmprof.engine.attention.varlen_kernel import VarlenKernel
from llmprof.engine.kv_cache import KvPool
from llmprof.engine.step_batch import StepBatch
from llmprof.errors import MeasurementFailedError
from tests import attention_libraries
from tests.attention_libraries import FakeVarlen
from tests.published import decoder
from tests.step_batches import Scattered, Shape, side_by_side

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8
MODEL = decoder("small", 1, 48, 48, HEADS, KV_HEADS, 50)
FLASHINFER = sys.modules[attention_libraries.__name__]
WINDOWED = ScoreRule(scale=0.5, window=3)


def needs(block_tokens: int, rules: tuple[ScoreRule, ...] = (PLAIN,)) -> AttentionNeeds:
    return AttentionNeeds(
        "cpu", torch.float32, torch.float32, HEADS, KV_HEADS, HEAD_DIM, block_tokens, rules
    )


def varlen(fake: FakeVarlen) -> VarlenKernel:
    parameters = frozenset(inspect.signature(fake.__call__).parameters)
    return VarlenKernel(VarlenApi(fake, parameters), flash_attention_3=fake.flash_attention_3)


def kernel_named(name: str, block_tokens: int, rule: ScoreRule = PLAIN) -> StepKernel:
    if name == "flashinfer":
        return FlashInferKernel(FLASHINFER, "0.0", needs(block_tokens, (rule,)))
    return varlen(FakeVarlen(flash_attention_3=name == "varlen-3"))


def a_pool(num_blocks: int, block_tokens: int) -> KvPool:
    pool = KvPool(
        MODEL,
        num_blocks=num_blocks,
        block_tokens=block_tokens,
        kv_dtype="fp32",
        dtype=torch.float32,
        device="cpu",
    )
    pool.fill_random(3)
    return pool


def both(
    kernel: StepKernel, pool: KvPool, step: StepBatch, rule: ScoreRule
) -> tuple[torch.Tensor, torch.Tensor]:
    """By the library, and with every score written out; queries are views of a wider projection."""
    fused = torch.randn(step.num_rows, HEADS + 2 * KV_HEADS, HEAD_DIM)
    query, keys_values = fused[:, :HEADS], fused[:, HEADS:].reshape(-1, 2, KV_HEADS, HEAD_DIM)
    pool.begin_step(step)
    pool.append(0, keys_values, step)
    results = []
    for attention in (
        FlashAttention(step_kernel=kernel, rules=(rule,)),
        StandardAttention((rule,)),
    ):
        attention.begin_step(step)
        results.append(attention(query, pool, 0, step))
    return results[0], results[1]


STEPS: Sequence[Sequence[Shape]] = (
    [(5, 1), (1, 3), (6, 7)],
    [(6, 1), (4, 1), (13, 1)],
    [(7, 1), (5, 1), (0, 9)],
    [(8, 4), (6, 4), (9, 4)],
)


@pytest.mark.parametrize("rule", [PLAIN, WINDOWED], ids=["plain", "window"])
@pytest.mark.parametrize("block_tokens", [4, 32])
@pytest.mark.parametrize("library", ["varlen-2", "varlen-3", "flashinfer"])
def test_ragged_steps(library: str, block_tokens: int, rule: ScoreRule) -> None:
    scattered = Scattered.of(3, 20, block_tokens, seed=7)
    pool = a_pool(scattered.num_blocks, block_tokens)
    kernel = kernel_named(library, block_tokens, rule)
    for shapes in STEPS:
        found, expected = both(kernel, pool, scattered.step(shapes), rule)
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("library", ["varlen-2", "varlen-3", "flashinfer"])
def test_a_static_batch_in_a_contiguous_cache(library: str) -> None:
    pool = a_pool(3, 20)
    kernel = kernel_named(library, 20)
    for cached, new in ((5, 1), (6, 4), (10, 1)):
        step = side_by_side(3, cached, new, max_tokens=20)
        found, expected = both(kernel, pool, step, PLAIN)
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)


def test_capped_scores_in_flashinfer() -> None:
    rule = ScoreRule(cap=2.0, window=4)
    scattered = Scattered.of(3, 20, 4, seed=2)
    pool = a_pool(scattered.num_blocks, 4)
    found, expected = both(
        kernel_named("flashinfer", 4, rule), pool, scattered.step(STEPS[0]), rule
    )
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)


def test_new_tokens_alone_stay_with_torch_unless_a_window_hides_some() -> None:
    scattered = Scattered.of(1, 20, 4, seed=1)
    pool = a_pool(scattered.num_blocks, 4)
    fake = FakeVarlen()
    both(varlen(fake), pool, scattered.step([(0, 9)]), PLAIN)
    assert not fake.calls
    found, expected = both(varlen(fake), pool, scattered.step([(0, 9)]), WINDOWED)
    assert fake.calls == [{"window_size": (2, 0), "max_q": 9, "max_k": 9}]
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)


def test_the_signature_that_the_stand_in_has_is_that_of_torch() -> None:
    """Of the installed version: all that we pass is there under the same name and kind."""
    found = find_varlen()
    if isinstance(found, str):
        pytest.skip(found)
    own = inspect.signature(FakeVarlen.__call__).parameters
    real = inspect.signature(found.attend).parameters
    assert list(own)[1:8] == list(real)[:7]
    passed = ("scale", "window_size", "seqused_k", "block_table")
    for name in (*passed, *({"enable_gqa", "num_splits"} & found.parameters)):
        assert own[name].kind is real[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_the_real_operator_takes_the_arguments_on_tensors_without_numbers() -> None:
    """Shapes and dtypes through torch's own checks; the strides of a page are those of the store."""
    found = find_varlen()
    if isinstance(found, str):
        pytest.skip(found)
    scattered = Scattered.of(3, 600, 256, seed=7)
    step = scattered.step([(300, 1), (256, 1), (512, 1)])
    step.context_lens, step.block_tables = (
        one.to("meta") for one in (step.context_lens, step.block_tables)
    )
    store = torch.empty(2, 12, KV_HEADS, 256, 64, dtype=torch.bfloat16, device="meta")
    query = torch.empty(3, HEADS, 64, dtype=torch.bfloat16, device="meta")
    kernel = VarlenKernel(found, flash_attention_3=False)
    assert kernel(query, store, step).shape == (3, HEADS * 64)


def test_pages_by_hand() -> None:
    """Contexts of 9, 4 and 5 tokens in blocks of 4: three pages, one and two, the last ones holding 1, 4, 1."""
    scattered = Scattered.of(3, 12, 4, seed=5)
    step = scattered.step([(8, 1), (3, 1), (3, 2)])
    pages = step_pages(step, 4)
    tables = scattered.tables
    assert pages.indices.tolist() == [*tables[0], tables[1][0], *tables[2][:2]]
    assert pages.indptr.tolist() == [0, 3, 4, 6]
    assert pages.last_page_len.tolist() == [1, 4, 1]
    assert pages.bounds.tolist() == [0, 1, 2, 4]
    step.host_context_lens = (9, 4, 5)
    assert torch.equal(step_pages(step, 4).indices, pages.indices)


def test_one_plan_per_step_and_rule() -> None:
    kernel = FlashInferKernel(FLASHINFER, "0.0", needs(4, (PLAIN, WINDOWED)))
    scattered = Scattered.of(2, 20, 4, seed=5)
    pool = a_pool(scattered.num_blocks, 4)
    for cached in (5, 6):
        step = scattered.step([(cached, 1), (9, 1)])
        kernel.begin_step(step)
        for rule in (PLAIN, WINDOWED, PLAIN, WINDOWED):
            kernel(torch.randn(2, HEADS, HEAD_DIM), pool.stored(0), step, rule)
    plans = [wrapper.num_plans for wrapper in kernel._eager.values()]  # type: ignore[attr-defined]
    assert plans == [2, 2]


def test_a_plan_that_flashinfer_refuses_is_one_line() -> None:
    class Refusing(attention_libraries.BatchDecodeWithPagedKVCacheWrapper):
        def plan(self, *args: object, **given: object) -> None:
            raise RuntimeError("Buffer overflow when allocating memory\nmore")

    class Module:
        BatchDecodeWithPagedKVCacheWrapper = Refusing

    kernel = FlashInferKernel(Module, "0.0", needs(4))
    scattered = Scattered.of(2, 20, 4, seed=5)
    step = scattered.step([(5, 1), (9, 1)])
    kernel.begin_step(step)
    pool = a_pool(scattered.num_blocks, 4)
    with pytest.raises(
        MeasurementFailedError, match=r"\(Buffer overflow when allocating memory\)$"
    ):
        kernel(torch.randn(2, HEADS, HEAD_DIM), pool.stored(0), step)


@pytest.mark.parametrize("library", ["varlen-2", "varlen-3", "flashinfer"])
@pytest.mark.parametrize("block_tokens", [16, None], ids=["paged", "contiguous"])
def test_a_trial_of_what_is_right(library: str, block_tokens: int | None) -> None:
    rules = (PLAIN, ScoreRule(window=4096))
    asked = AttentionNeeds(
        "cpu", torch.bfloat16, torch.bfloat16, HEADS, KV_HEADS, 64, block_tokens, rules
    )
    kernel: StepKernel = varlen(FakeVarlen(flash_attention_3=library == "varlen-3"))
    if library == "flashinfer":
        kernel = FlashInferKernel(FLASHINFER, "0.0", asked)
    assert trial_trouble(kernel, asked) is None


class OffByOne(FakeVarlen):
    """Its window lets a token too many be seen."""

    def __call__(self, *args: object, **given: object) -> torch.Tensor:
        left, right = given["window_size"]  # type: ignore[misc]
        given["window_size"] = (left + 1 if left >= 0 else left, right)  # type: ignore[has-type]
        return super().__call__(*args, **given)  # type: ignore[arg-type]


class Unwritten(FakeVarlen):
    def __call__(self, *args: object, **given: object) -> torch.Tensor:
        out = super().__call__(*args, **given)  # type: ignore[arg-type]
        out[-1] = math.nan
        return out


class Failing(FakeVarlen):
    def __call__(self, *args: object, **given: object) -> torch.Tensor:
        raise RuntimeError("no kernel image is available\nmore")


@pytest.mark.parametrize(
    ("fake", "reason"),
    [
        (OffByOne, "it gives wrong results here"),
        (Unwritten, "it gives wrong results here (off by nan in a trial)"),
        (Failing, "it fails in a trial (no kernel image is available)"),
    ],
)
def test_a_trial_of_what_is_wrong(fake: type[FakeVarlen], reason: str) -> None:
    rule = ScoreRule(window=4096)
    asked = AttentionNeeds("cpu", torch.bfloat16, torch.bfloat16, HEADS, KV_HEADS, 64, 256, (rule,))
    api = VarlenApi(fake(), frozenset(inspect.signature(FakeVarlen.__call__).parameters))
    found = trial_trouble(VarlenKernel(api, flash_attention_3=False), asked)
    assert found is not None
    assert found.startswith(reason)
