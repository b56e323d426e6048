"""Faults of other tools in the public record, by the test that holds the right value.

The letters: F FLOPs, S speed measurement, R peaks and verdicts, N devices, NVML and permissions. A
name that no longer exists in its file fails here, so that no case is lost when tests move.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]

OPS: Final = "unit/costs/test_ops.py"
STEP: Final = "unit/costs/test_step.py"
FAULTS: Final = "unit/costs/test_known_faults.py"
RECORDER: Final = "unit/instruments/test_op_recorder.py"
SPEED: Final = "unit/analysis/test_public_faults.py"
PHASES: Final = "unit/analysis/test_phases.py"
LATENCY: Final = "unit/analysis/test_latency.py"
PLAUSIBLE: Final = "unit/analysis/test_plausibility.py"
DEVICES: Final = "unit/devices/test_lookup.py"
NVML: Final = "unit/instruments/test_nvml.py"

CASES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "F01": (
        "a multiply-add called one FLOP",
        (f"{OPS}::test_a_multiply_add_is_two", f"{RECORDER}::test_products_of_other_kinds"),
    ),
    "F03": (
        "attention counted twice",
        (
            f"{OPS}::test_attention_is_two_products_and_counted_once",
            f"{RECORDER}::test_masked_attention_and_the_plain_backend_count_alike",
        ),
    ),
    "F05": (
        "a causal rectangle taken for half a square",
        (
            f"{OPS}::test_keys_and_values_of_different_sizes",
            f"{STEP}::test_non_square_causal_prefill",
        ),
    ),
    "F07": (
        "one of the two products of attention",
        (f"{FAULTS}::test_both_products_of_latent_attention_count",),
    ),
    "F09": (
        "a look-up as a product, a tied head as free",
        (f"{STEP}::test_head_costs_the_same_tied_or_not_and_a_look_up_only_its_rows",),
    ),
    "F11": (
        "attention and the matrix operator not seen",
        (
            f"{RECORDER}::test_fused_attention_by_keyword_counts_the_full_square",
            f"{RECORDER}::test_scores_by_the_matrix_operator",
        ),
    ),
    "F13": (
        "a ragged batch counted at its longest",
        (
            f"{OPS}::test_ragged_decode_batch",
            f"{STEP}::test_ragged_batch_is_summed_and_not_padded",
            f"{RECORDER}::test_sequences_of_different_lengths_count_their_own_rectangles",
        ),
    ),
    "F15": (
        "decode attends beyond its window",
        (
            f"{FAULTS}::test_layers_with_a_window_attend_within_it",
            "integration/test_inspect.py::test_experts_windows_and_devices",
        ),
    ),
    "S01": (
        "the clock stops before the device",
        (f"{SPEED}::test_a_launch_that_returns_at_once_is_not_the_time_of_its_work",),
    ),
    "S03": (
        "prompt and output share a rate",
        (
            f"{SPEED}::test_prompt_and_output_never_share_a_rate",
            f"{PHASES}::test_prompt_and_output_speeds_are_two_numbers",
        ),
    ),
    "S05": (
        "the first token in the decode rate",
        (f"{LATENCY}::test_the_first_token_belongs_to_ttft_and_not_to_tpot",),
    ),
    "S07": (
        "NaN for a single output token",
        (
            f"{SPEED}::test_a_single_output_token_has_a_null_and_no_number",
            f"{LATENCY}::test_one_output_token_has_no_time_per_token",
        ),
    ),
    "S09": (
        "the batch not in the rate",
        (f"{SPEED}::test_batch_is_in_the_rate_and_says_whose_rate_it_is",),
    ),
    "S11": (
        "chunks counted for tokens",
        (f"{SPEED}::test_tokens_are_counted_by_their_ids_and_not_by_what_carries_them",),
    ),
    "S13": (
        "a cached prompt counted as processed",
        (f"{PHASES}::test_a_cached_prompt_does_not_count_as_processed",),
    ),
    "S15": (
        "a cache measured for memory",
        ("unit/ceilings/test_memory_levels.py::test_below_four_last_level_caches_it_is_cache",),
    ),
    "R01": (
        "a sparse peak for a dense one",
        (
            f"{PLAUSIBLE}::test_mfu_is_over_the_dense_peak",
            f"{DEVICES}::test_each_form_factor_has_its_own_dense_peaks",
        ),
    ),
    "R03": (
        "another card's peak",
        (
            f"{DEVICES}::test_an_unknown_device_has_no_peak",
            f"{SPEED}::test_a_device_without_a_known_peak_gets_nobody_elses",
            f"{PLAUSIBLE}::test_an_unknown_device_or_dtype_has_no_share",
        ),
    ),
    "R05": (
        "the rate with fp16 accumulation",
        (
            "unit/devices/test_table.py::test_the_peaks_that_are_confused_most",
            f"{PLAUSIBLE}::test_a_geforce_accumulates_in_fp32_at_half_rate",
        ),
    ),
    "N01": (
        "utilisation not supported",
        (f"{NVML}::test_utilisation_that_is_not_supported_leaves_everything_else",),
    ),
    "N03": (
        "unified memory",
        (
            f"{NVML}::test_unified_memory_has_no_figure_by_nvml",
            "unit/instruments/test_gpu_info.py"
            "::test_unified_memory_has_torch_s_total_though_nvml_knows_none",
        ),
    ),
    "N05": (
        "the driver's reserve counted as used",
        (f"{NVML}::test_used_memory_is_without_the_driver_s_reserve",),
    ),
    "N07": (
        "process ids of the host in a container",
        (f"{NVML}::test_in_a_container_that_hides_us_the_processes_are_not_known",),
    ),
    "N09": (
        "memory utilisation read as occupancy",
        (f"{NVML}::test_how_full_memory_is_and_how_long_it_was_busy_are_two_figures",),
    ),
    "N11": (
        "memory of other processes",
        (
            "unit/costs/test_memory.py::test_a_budget_beside_others_is_never_negative",
            "unit/analysis/test_telemetry.py"
            "::test_memory_that_another_process_frees_is_a_warning_and_growing_is_none",
        ),
    ),
}


@cache
def functions_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_tests(case: str) -> None:
    _, names = CASES[case]
    for name in names:
        path, _, function = name.partition("::")
        assert function in functions_in(TESTS / path), name


def test_no_case_of_the_four_groups_is_left_out() -> None:
    """Odd numbers only: the record was thinned out."""
    lasts = {"F": 15, "S": 15, "R": 5, "N": 11}
    expected = {f"{group}{n:02}" for group, last in lasts.items() for n in range(1, last + 1, 2)}
    assert set(CASES) == expected
