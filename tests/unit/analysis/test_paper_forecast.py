from llmprof.analysis.paper_device import PaperDevice
from llmprof.analysis.paper_forecast import paper_target, predict_on_paper
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Part
from llmprof.schema.prediction import Tier
from llmprof.schema.settings import RunConfig
from tests.predicted_runs import device_ceilings
from tests.smollm2 import a_manifest, a_model


def test_a_model_on_paper_reads_its_weights_at_the_ceiling_at_best() -> None:
    ceilings = device_ceilings(30e9, 1.2e12)
    config = RunConfig.model_validate({"model": "smollm2-135m", "workload": {"prompt_tokens": 64}})
    target = paper_target(a_model(), a_manifest(), config, ceilings.environment)
    found = predict_on_paper(target, PaperDevice.of_ceilings(ceilings))
    assert found.tier is Tier.A
    decode = next(one for one in found.phases if one.phase is Phase.DECODE)
    least_s = 269e6 / 30e9
    assert least_s < decode.step_s.low < decode.step_s.point < decode.step_s.high
    assert decode.step_s.high < 2.5 * least_s
    assert decode.base_step_s is None
    assert decode.speedup is None
    assert any("nobody has run" in one for one in found.assumptions)


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
        target = paper_target(a_model(), a_manifest(), config, ceilings.environment)
        for phase in predict_on_paper(target, PaperDevice.of_ceilings(ceilings)).phases:
            part = next(one for one in phase.parts if one.part is Part.FIXED_COST)
            costs[mode, phase.phase] = part.predicted_s
    assert costs["cuda_graph", Phase.DECODE] == costs["eager", Phase.DECODE] / 4 > 0
    assert costs["cuda_graph", Phase.PREFILL] == costs["eager", Phase.PREFILL]
