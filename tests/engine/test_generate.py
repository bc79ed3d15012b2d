"""`generate` against transformers, and how texts end."""

import random
from typing import Any

import pytest
import torch

from engine import LLM, PromptTooLong, SamplingParams, Tokenizer
from engine.sampling import Draw, sample
from engine.text import TextTask
from tests.engine.conftest import MOVES, SYSTEM, config

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    rng = random.Random(3)
    return [SYSTEM[: rng.randint(1, 70)] + " " + rng.choice(MOVES) for _ in range(20)]


@pytest.fixture(scope="module")
def expected(prompts: list[str], reference: Any, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    texts = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt)
        with torch.inference_mode():
            for _ in range(12):
                ids.append(int(reference(torch.tensor([ids])).logits[0, -1].argmax()))
        texts.append(tuple(ids[-12:]))
    return texts


def test_greedy_equals_transformers_alone_and_batched_cold_and_cached(
    checkpoint: str, prompts: list[str], expected: list[tuple[int, ...]]
) -> None:
    alone = LLM(config(checkpoint))
    assert [alone.generate([p], GREEDY)[0].token_ids for p in prompts] == expected
    batched = LLM(config(checkpoint))
    for _ in ("cold", "cached"):
        outputs = batched.generate(prompts, GREEDY)
        assert [output.token_ids for output in outputs] == expected
    assert all(o.metrics.cached_tokens == o.metrics.prompt_tokens - 1 for o in outputs)


def test_output_is_the_same_without_prefix_caching_and_in_small_steps(
    checkpoint: str, prompts: list[str], expected: list[tuple[int, ...]]
) -> None:
    for changes in (
        {"enable_prefix_caching": False},
        {"max_num_batched_tokens": 5},
        {"max_num_seqs": 3},
    ):
        llm = LLM(config(checkpoint, **changes))
        assert [output.token_ids for output in llm.generate(prompts, GREEDY)] == expected


def test_output_is_the_same_under_preemption(
    checkpoint: str,
    prompts: list[str],
    expected: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.scheduler._GROWTH", 0)  # admit what is bound to outgrow the memory
    per_token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, dimension, bytes
    llm = LLM(config(checkpoint, kv_cache_memory=110 * per_token))
    outputs = llm.generate(prompts, GREEDY)
    assert [output.token_ids for output in outputs] == expected
    assert llm.stats().preemptions == sum(output.metrics.preemptions for output in outputs) > 0


def test_a_seed_is_unaffected_by_neighbours(checkpoint: str, prompts: list[str]) -> None:
    llm = LLM(config(checkpoint))
    params = [
        SamplingParams(max_tokens=8, temperature=1.5, seed=seed, ignore_eos=True)
        for seed in range(20)
    ]
    alone = [llm.generate([p], one)[0].token_ids for p, one in zip(prompts, params, strict=True)]
    together = [output.token_ids for output in llm.generate(prompts, params)]
    assert together == alone
    other = SamplingParams(max_tokens=8, temperature=1.5, seed=99, ignore_eos=True)
    assert llm.generate([prompts[0]], other)[0].token_ids != alone[0]


def test_samples_stay_within_top_k_top_p_and_min_p() -> None:
    logits = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.06, 0.04]]))

    def seen(**limits: Any) -> set[int]:
        params = SamplingParams(**limits)
        return {sample(logits, [Draw(params, seed, 0)])[0] for seed in range(400)}

    assert seen() == {0, 1, 2, 3, 4}
    assert seen(top_k=2) == {0, 1}
    assert seen(top_p=0.75) == {0, 1, 2}
    assert seen(min_p=0.49) == {0, 1, 2}
    assert seen(min_p=0.6) == {0, 1}
    assert seen(temperature=0) == seen(temperature=1e-30) == {0}
    drawn = [sample(logits, [Draw(SamplingParams(), 5, position)])[0] for position in range(4000)]
    assert [drawn.count(i) / 4000 for i in range(5)] == pytest.approx(
        [0.4, 0.3, 0.2, 0.06, 0.04], abs=0.03
    )


def test_end_of_text_ends_the_text(checkpoint: str, prompts: list[str]) -> None:
    llm = LLM(config(checkpoint))
    hot = [SamplingParams(max_tokens=200, temperature=5.0, seed=seed) for seed in range(20)]
    ended = [o for o in llm.generate(prompts, hot) if o.finish_reason == "stop"]
    assert ended
    assert all(0 not in output.token_ids and len(output.token_ids) < 200 for output in ended)


def test_a_stop_string_ends_the_text_and_the_next_request_is_unharmed(
    checkpoint: str, prompts: list[str], expected: list[tuple[int, ...]]
) -> None:
    llm = LLM(config(checkpoint))
    [whole] = llm.generate(prompts[:1], GREEDY)
    stop = whole.text[4:7]
    params = SamplingParams(max_tokens=12, temperature=0, stop=(stop,), ignore_eos=True)
    [output] = llm.generate(prompts[:1], params)
    assert output.text == whole.text[: whole.text.index(stop)] and output.finish_reason == "stop"
    assert llm.generate(prompts[:1], GREEDY)[0].token_ids == expected[0]


def deltas(tokenizer: Tokenizer, text: str, **params: Any) -> tuple[list[str], TextTask]:
    task = TextTask(SamplingParams(**params), 1000, tokenizer)
    out = []
    for token in tokenizer.encode(text):
        out.append(task.append(token, False))
        if task.finish_reason:
            break
    else:
        out.append(task.append(0, True))
    return out, task


def test_deltas_are_whole_characters_and_join_to_the_text(tokenizer: Tokenizer) -> None:
    text = "한국 장기 漢字 🙂 e2e4"
    out, task = deltas(tokenizer, text)
    assert "".join(out) == text == task.text
    assert not any("\ufffd" in delta for delta in out)


def test_stop_strings_are_held_back_until_sure(tokenizer: Tokenizer) -> None:
    out, task = deltas(tokenizer, "one END two END. three", stop=("END.", "never"))
    assert "".join(out) == task.text == "one END two "
    assert task.finish_reason == "stop"
    out, task = deltas(tokenizer, "one END", stop=("END.",))
    assert "".join(out) == task.text == "one END"


def test_max_tokens_is_cut_to_the_context(checkpoint: str) -> None:
    llm = LLM(config(checkpoint, max_model_len=32))
    params = SamplingParams(max_tokens=100, temperature=0, ignore_eos=True)
    [output] = llm.generate([[5] * 30], params)
    assert len(output.token_ids) == 2 and output.finish_reason == "length"
    with pytest.raises(PromptTooLong):
        llm.generate([[5] * 32], params)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"top_k": -1},
        {"min_p": 2},
        {"max_tokens": 0},
        {"stop": ("",)},
    ],
)
def test_wrong_params_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(must|is empty)"):
        SamplingParams(**wrong)


@pytest.mark.parametrize("prompt", ["", [], [10_000], [-1]])
def test_wrong_prompts_are_refused(checkpoint: str, prompt: Any) -> None:
    with pytest.raises(ValueError, match="prompt"):
        LLM(config(checkpoint)).generate([prompt], GREEDY)
