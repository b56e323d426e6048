import pytest

from llmprof.analysis.paper_device import PaperDevice
from llmprof.analysis.paper_forecast import paper_target, predict_on_paper
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config
from llmprof.devices.search import datasheet_named
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.ledger import Part
from llmprof.schema.prediction import Tier
from llmprof.schema.settings import RunConfig
from tests.predicted_runs import device_ceilings
from tests.smollm2 import a_manifest, a_model


def test_a_model_on_paper_reads_its_weights_at_the_ceiling_at_best() -> None:
    ceilings = device_ceilings(30e9, 1.2e12)
    config = RunConfig.model_validate({"model": "smollm2-135m", "workload": {"prompt_tokens": 64}})
    device = PaperDevice.of_ceilings(ceilings)
    found = predict_on_paper(paper_target(a_model(), a_manifest(), config, device), device)
    assert found.tier is Tier.A
    decode = next(one for one in found.phases if one.phase is Phase.DECODE)
    least_s = 269e6 / 30e9
    assert least_s < decode.step_s.low < decode.step_s.point < decode.step_s.high
    assert decode.step_s.high < 2.5 * least_s
    assert decode.base_step_s is None
    assert decode.speedup is None
    assert any("nobody has run" in one for one in found.assumptions)


def test_the_range_is_from_what_is_assumed_at_best_to_what_is_at_worst() -> None:
    """Llama 3.1 8B, 16 sequences of 528 tokens on an H100 at 3.35 TB/s: all of it there, or 60 %."""
    model = preset_config("llama-3.1-8b")
    config = RunConfig.model_validate({"model": model.name, "workload": {"batch": 16}})
    stored = paper_manifest(model)
    sheet = datasheet_named("H100 SXM")
    device = PaperDevice.of_datasheet(sheet)
    target = paper_target(model, stored, config, device)
    decode = next(
        one for one in predict_on_paper(target, device).phases if one.phase is Phase.DECODE
    )
    matrices = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336) + 128_256 * 4096
    read = 2 * matrices + 16 * 527 * 131_072
    starts = next(one for one in decode.groups if one.group is None).predicted_s.high
    assert decode.step_s.low == pytest.approx(read / 3.35e12, rel=1e-3)
    assert decode.step_s.high == pytest.approx(read / 0.6 / 3.35e12 + starts, rel=1e-3)
    assert decode.step_s.point == pytest.approx(read / 0.8 / 3.35e12, rel=1e-3)


def test_a_graph_pays_its_own_fixed_cost() -> None:
    """A kernel costs 4 us in a stream and a quarter of that in a graph; prefills are not replayed."""
    ceilings = device_ceilings(30e9, 1.2e12, alpha_s=4e-6)
    fixed = ceilings.fixed_cost.model_copy(update={"graph_s": 1e-6})
    ceilings = ceilings.model_copy(update={"fixed_cost": fixed})
    costs = {}
    for mode in ("eager", "cuda_graph"):
        config = RunConfig.model_validate(
            {
                "model": "smollm2-135m",
                "workload": {"prompt_tokens": 64},
                "execution": {"mode": mode},
            }
        )
        device = PaperDevice.of_ceilings(ceilings)
        target = paper_target(a_model(), a_manifest(), config, device)
        for phase in predict_on_paper(target, device).phases:
            part = next(one for one in phase.parts if one.part is Part.FIXED_COST)
            costs[mode, phase.phase] = part.predicted_s
    assert costs["cuda_graph", Phase.DECODE] == costs["eager", Phase.DECODE] / 4 > 0
    assert costs["cuda_graph", Phase.PREFILL] == costs["eager", Phase.PREFILL]


def test_fp8_weights_are_multiplied_in_fp8_where_that_has_a_ceiling() -> None:
    """30 layers of 2 x 64 x (576 x 960 + 576 x 576 + 3 x 576 x 1536) FLOP, twice as fast in fp8."""
    settings = {"quantization": "fp8", "dtype": "bf16"}
    config = RunConfig.model_validate(
        {"model": "smollm2-135m", "weights": settings, "workload": {"prompt_tokens": 64}}
    )
    without = device_ceilings(30e9, 1.2e12)
    fp8 = without.compute[0].model_copy(update={"dtype": "fp8", "flops_per_s": 2.4e12})
    ceilings = without.model_copy(update={"compute": (*without.compute, fp8)})
    flops = 30 * 2 * 64 * (576 * 960 + 576 * 576 + 3 * 576 * 1536)
    by_dtype = {}
    for known in (without, ceilings):
        device = PaperDevice.of_ceilings(known)
        target = paper_target(a_model(), a_manifest(), config, device)
        cost = target.cost(Phase.PREFILL)
        by_dtype[known is ceilings] = sum(op.flops for op in cost.ops if op.compute_dtype == "fp8")
        assert predict_on_paper(target, device).phases
        copied = cost.of_groups(OpGroup.DOWN_PROJECTION).traffic.copies
        assert bool(copied) is (known is without)
        decode = target.cost(Phase.DECODE)
        assert {op.compute_dtype for op in decode.ops} == {"bf16"}
    assert by_dtype == {False: 0, True: flops}


def test_a_packed_checkpoint_is_said_to_be_counted_unpacked() -> None:
    """Half of the demo's matrices in q4_1, which the engine unpacks when it loads them."""
    device = PaperDevice.of_ceilings(device_ceilings(30e9, 1.2e12))
    plain = a_manifest()
    q4 = [one.model_copy(update={"stored_dtype": "q4_1"}) for one in plain.tensors[::2]]
    stored = plain.model_copy(update={"tensors": (*plain.tensors[1::2], *q4)})
    for packed, quantization, said in (
        (stored, "none", True),
        (stored, "int8", False),
        (plain, "none", False),
    ):
        config = RunConfig.model_validate(
            {
                "model": "smollm2-135m",
                "workload": {"prompt_tokens": 64},
                "weights": {"quantization": quantization},
            }
        )
        target = paper_target(a_model(), packed, config, device)
        found = predict_on_paper(target, device, stored=packed)
        assert any("stored as q4_1 count as bf16" in one for one in found.assumptions) is said


def test_experts_on_paper_are_chosen_evenly_and_that_is_said() -> None:
    device = PaperDevice.of_ceilings(device_ceilings(30e9, 1.2e12))
    model = preset_config("mixtral-8x7b")
    config = RunConfig.model_validate({"model": model.name, "workload": {"prompt_tokens": 64}})
    stored = paper_manifest(model)
    found = predict_on_paper(paper_target(model, stored, config, device), device, stored=stored)
    assert "uniform-routing" in {one.code for one in found.caveats}
