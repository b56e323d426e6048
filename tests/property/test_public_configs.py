"""Configurations of every family with a field that is wrong: a description or a plain error.

LLMPROF_EXAMPLES sets how many are tried: a few hundred by default, 20,000 for a long run.
"""

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.costs.kv_cache import KvConvention, kv_bytes_at
from llmprof.costs.options import CostOptions
from llmprof.costs.parameters import count_parameters
from llmprof.costs.step import step_cost
from llmprof.errors import LlmprofError
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from tests.public_models import PUBLIC_MODELS

many = settings(
    max_examples=int(os.environ.get("LLMPROF_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
values: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(), st.text(max_size=4)), max_size=3),
    st.dictionaries(
        st.sampled_from(["rope_type", "type", "factor", "quant_method", "bits", "group_size"]),
        st.one_of(st.integers(), st.sampled_from(["yarn", "gptq", "fp8", "awq", "mxfp4"])),
        max_size=3,
    ),
)
extra = st.sampled_from(
    ["quantization_config", "text_config", "vision_config", "layer_types", "model_type", "alibi"]
)


@many
@given(st.data())
def test_mutated_fields(data: st.DataObject) -> None:
    public = data.draw(st.sampled_from(PUBLIC_MODELS))
    keys = st.one_of(st.sampled_from(sorted(public.config)), extra)
    changes = data.draw(st.dictionaries(keys, values, min_size=1, max_size=2))
    try:
        model = parse_config(public.config | changes, name="mutated")
        manifest = paper_manifest(model)
    except LlmprofError:
        return
    assert manifest.parameters == count_parameters(model).total
    ideal, rounded, allocated = (
        kv_bytes_at(model, 5_000, 2.0, convention=one) for one in KvConvention
    )
    assert 0 <= ideal <= rounded <= allocated
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(new_tokens=1, cached_tokens=5_000),),
        logit_rows=1,
    )
    cost = step_cost(model, manifest, shape, CostOptions())
    assert 0 < cost.flops <= cost.flops_dense
    looked_up = manifest.stored_bytes / model.vocab_size  # a row at most, beside a tied head
    assert cost.traffic.weights <= (manifest.stored_bytes + looked_up) * (1 + 1e-9)
