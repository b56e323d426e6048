from llmprof.analysis.paper_forecast import paper_target, predict_on_paper
from llmprof.schema.cost import Phase
from llmprof.schema.prediction import Tier
from llmprof.schema.settings import RunConfig
from tests.predicted_runs import device_ceilings
from tests.smollm2 import a_manifest, a_model


def test_a_model_on_paper_reads_its_weights_at_the_ceiling_at_best() -> None:
    ceilings = device_ceilings(30e9, 1.2e12)
    config = RunConfig.model_validate({"model": "smollm2-135m", "workload": {"prompt_tokens": 64}})
    target = paper_target(a_model(), a_manifest(), config, ceilings)
    found = predict_on_paper(target, ceilings)
    assert found.tier is Tier.A
    decode = next(one for one in found.phases if one.phase is Phase.DECODE)
    least_s = 269e6 / 30e9
    assert least_s < decode.step_s.low < decode.step_s.point < decode.step_s.high
    assert decode.step_s.high < 2.5 * least_s
    assert decode.base_step_s is None
    assert decode.speedup is None
    assert any("nobody has run" in one for one in found.assumptions)
