"""What Prometheus is told: vLLM's names, figures that agree with the engine's own, nothing where there is no data."""

from prometheus_client.parser import text_string_to_metric_families

from engine import LLM, ChoiceParams, SamplingParams
from tests.engine.conftest import MOVES, SYSTEM, config


def read(llm: LLM) -> dict[str, float]:
    """By name and labels other than the model's."""
    found = {}
    for family in text_string_to_metric_families(llm.metrics()):
        for sample in family.samples:
            assert sample.labels["model_name"] == llm.stats().model
            rest = [value for key, value in sample.labels.items() if key != "model_name"]
            found[" ".join([sample.name, *rest])] = sample.value
    return found


def test_counters_agree_with_the_stats_and_histograms_with_the_outputs(checkpoint: str) -> None:
    llm = LLM(config(checkpoint))
    texts = [" " + move for move in MOVES[:30]] + [" O-O", " O-O-O"]
    outputs = llm.choose([SYSTEM] * 5, [texts] * 5)
    outputs += llm.choose([SYSTEM] * 2, [texts[:1]] * 2, ChoiceParams(scoring="masked"))
    params = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
    written = llm.generate([SYSTEM + " e2e4"] * 3, params)
    stats, seen = llm.stats(), read(llm)

    for name, value in {
        "vllm:num_requests_running": 0,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0,
        "vllm:num_preemptions_total": stats.preemptions,
        "vllm:prompt_tokens_total": stats.prompt_tokens,
        "vllm:prefix_cache_queries_total": stats.prompt_tokens,
        "vllm:prefix_cache_hits_total": stats.cached_tokens,
        "vllm:generation_tokens_total": stats.generated_tokens,
        "engine:computed_rows_total": stats.computed_tokens,
        "engine:scored_rows_total": stats.scored_rows,
        "engine:steps_total": stats.steps,
        "engine:requests_failed_total": 0,
        "vllm:request_success_total stop": 7,
        "vllm:request_success_total length": 3,
        "vllm:time_to_first_token_seconds_count": 10,
        "vllm:request_queue_time_seconds_count": 10,
        "vllm:e2e_request_latency_seconds_count": 10,
        "vllm:request_generation_tokens_sum": 18,
        "vllm:request_time_per_output_token_seconds_count": 3,
        "vllm:iteration_tokens_total_sum": stats.computed_tokens,
        "vllm:iteration_tokens_total_count": stats.steps,
        "engine:step_rows_count tree": stats.steps,
        "engine:legal_mass_count": 5,
    }.items():
        assert seen[name] == value, name
    assert stats.requests_finished == 10 and stats.generated_tokens == 18
    every = [output.metrics for output in [*outputs, *written]]
    assert sum(m.cached_tokens for m in every) == stats.cached_tokens
    assert sum(m.prompt_tokens for m in every) == seen["vllm:request_prompt_tokens_sum"]
    rows = {kind: seen[f"engine:step_rows_sum {kind}"] for kind in ("prompt", "token", "tree")}
    assert sum(rows.values()) == stats.computed_tokens
    assert rows["prompt"] == stats.prompt_tokens - stats.cached_tokens
    assert rows["tree"] > 5 and rows["token"] >= 3 * 5


def test_a_rate_without_data_is_left_out_instead_of_shown_as_0(checkpoint: str) -> None:
    llm = LLM(config(checkpoint))
    assert llm.stats().prefix_hit_rate is None
    assert "engine:prefix_hit_rate" not in read(llm)
    llm.choose([SYSTEM], [[" e2e4"]])
    assert read(llm)["engine:prefix_hit_rate"] == 0.0


def test_two_engines_of_one_process_count_apart(checkpoint: str) -> None:
    one, other = LLM(config(checkpoint)), LLM(config(checkpoint))
    one.choose([SYSTEM], [[" e2e4"]])
    assert read(one)["vllm:request_success_total stop"] == 1
    assert read(other)["vllm:request_success_total stop"] == 0
