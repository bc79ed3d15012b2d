"""The engine's probabilities and texts against transformers', and of its own settings against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from model_shapes import write
from move_load import Ask, rounds

from engine import LLM, EngineConfig, ModelLoadError, SamplingParams
from gpu_checks.harness import QUICK, Context

Logs = list[tuple[float, ...]]


def answers(context: Context) -> dict[str, Any]:
    """Two models with random weights, spread widely enough that answers differ."""
    found: dict[str, Any] = {}
    wrong: list[str] = []
    cases: list[tuple[str, dict[str, Any]]] = [("tiny", QUICK if context.quick else {})]
    if not context.quick:
        cases += [
            ("SmolLM2-135M", {"num_hidden_layers": 8}),
            ("Qwen3-1.7B", {"num_hidden_layers": 4}),
        ]
    for shape, changes in cases:
        if context.left < 10 and found:
            break
        model = _checkpoint(context, shape, changes)
        found[shape] = _compare(context, shape, model, wrong)
        context.clear()
    context.add(
        "engine against transformers", "; ".join(wrong) or "all as it should be", "", not wrong
    )
    found["wrong"] = wrong
    return found | ({"error": "; ".join(wrong)} if wrong else {})


def _checkpoint(context: Context, shape: str, changes: dict[str, Any]) -> str:
    """Weights that transformers made, on the disk."""
    import transformers

    folder = write(shape, context.folder / "answers", **changes, initializer_range=0.1)
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(3)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


class Engines:
    """Answers of engines with different settings to the same requests."""

    def __init__(self, context: Context, model: str) -> None:
        self.config = EngineConfig(
            model,
            device=str(context.device),
            dtype="float32",
            max_num_seqs=32,
            kv_cache_memory=1 << 28,
        )
        count, plies = (2, 2) if context.quick else (8, 3)
        first = 2 if context.quick else 20
        self.plies = list(rounds(count, plies, first=first, system=40 if context.quick else 275))
        self.asks = [ask for asks in self.plies for ask in asks]
        self.words = SamplingParams(
            max_tokens=6 if context.quick else 24, temperature=0, ignore_eos=True
        )

    def ask(self, asks: Sequence[Ask] | None = None, **changes: Any) -> Logs:
        """Log probabilities of every choice, ply by ply over a growing cache; of `asks` alone, one after the other."""
        llm = LLM(replace(self.config, **changes))
        groups = self.plies if asks is None else [[ask] for ask in asks]
        logs: Logs = []
        for group in groups:
            for output in llm.choose([a.prompt for a in group], [a.choices for a in group]):
                assert output.logprobs is not None
                logs.append(output.logprobs)
        llm.close()
        return logs

    def write(self, **changes: Any) -> list[tuple[int, ...]]:
        llm = LLM(replace(self.config, **changes))
        prompts = [ask.prompt for ask in self.plies[0]]
        texts = [output.token_ids for output in llm.generate(prompts, self.words)]
        llm.close()
        return texts

    def tokenizer(self) -> Any:
        from engine import load_tokenizer

        return load_tokenizer(self.config.model)


def _compare(context: Context, shape: str, model: str, wrong: list[str]) -> dict[str, Any]:
    engines = Engines(context, model)
    reference, texts = _transformers(context, engines, "float32")
    found: dict[str, Any] = {}

    def expect(name: str, value: float, limit: float) -> None:
        found[name] = value
        if not value <= limit:
            wrong.append(f"{shape}: {name} {value:.2g}, over {limit:.2g}")

    backends = ["torch", "triton"]
    logs = {name: engines.ask(attention_backend=name) for name in backends}
    for name in backends:
        expect(f"float32 {name} against transformers", _apart(logs[name], reference), 2e-3)
    expect("triton against torch", _apart(logs["triton"], logs["torch"]), 5e-4)
    expect("texts that differ", _different(engines.write(), texts), 0.0)
    main = logs["triton"]
    if context.device.type == "cuda":
        eager = engines.ask(enforce_eager=True)
        expect("graphs against eager", _apart(engines.ask(), eager), 1e-4)
        expect(
            "texts of graphs against eager",
            _different(engines.write(), engines.write(enforce_eager=True)),
            0.0,
        )
        lower, _ = _transformers(context, engines, "bfloat16")
        theirs = _mean_apart(lower, reference)
        ours = _mean_apart(engines.ask(dtype="bfloat16"), reference)
        found["bfloat16 of transformers against float32"] = theirs
        expect("bfloat16 against float32, over that of transformers", ours / theirs, 1.5)
        expect(
            "float16 against float32, over that",
            _mean_apart(engines.ask(dtype="float16"), reference) / theirs,
            1.0,
        )
    for kept, limit in (("int8", 0.1), ("fp8", 0.6)):
        expect(
            f"{kept} cache against float32",
            _mean_apart(engines.ask(kv_cache_dtype=kept), main),
            limit,
        )
    found["deterministic"] = _deterministic(context, shape, engines, wrong)
    context.add(
        f"answers {shape}, float32",
        f"log p within {found['float32 triton against transformers']:.1e} of transformers, "
        f"back ends {found['triton against torch']:.1e} apart; deterministic: {found['deterministic']}",
    )
    return found


def _deterministic(context: Context, shape: str, engines: Engines, wrong: list[str]) -> str:
    """Whether the same requests have the same bits alone without a cache, and together over one."""
    try:
        together = engines.ask(deterministic=True)
    except ModelLoadError as refusal:
        return f"refused ({refusal})"
    alone = engines.ask(engines.asks, deterministic=True, enable_prefix_caching=False)
    count = sum(a != b for a, b in zip(together, alone, strict=True))
    if count:
        wrong.append(f"{shape}: {count} of {len(alone)} deterministic answers differ in a bit")
    return f"{count} of {len(alone)} differ"


def _apart(first: Logs, second: Logs) -> float:
    """The largest difference."""
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in zip(first, second, strict=True))


def _mean_apart(first: Logs, second: Logs) -> float:
    pairs = zip(first, second, strict=True)
    return float(np.mean([np.abs(np.subtract(a, b)).mean() for a, b in pairs]))


def _different(first: Sequence[Any], second: Sequence[Any]) -> float:
    return float(sum(a != b for a, b in zip(first, second, strict=True)))


@torch.inference_mode()
def _transformers(
    context: Context, engines: Engines, dtype: str
) -> tuple[Logs, list[tuple[int, ...]]]:
    """What transformers gives: every choice behind its prompt, all of a prompt in one batch; and greedy texts."""
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        engines.config.model, dtype=getattr(torch, dtype), attn_implementation="sdpa"
    ).to(context.device)
    tokenizer = engines.tokenizer()
    logs: Logs = []
    for ask in engines.asks:
        prompt = tokenizer.encode_prompt(ask.prompt)
        choices = [list(tokenizer.encode_choice(choice)) for choice in ask.choices]
        longest = max(map(len, choices))
        rows = [prompt + choice + [0] * (longest - len(choice)) for choice in choices]
        output = model(torch.tensor(rows, device=context.device), logits_to_keep=longest + 1)
        steps = torch.log_softmax(output.logits.double(), dim=-1)
        sums = torch.stack(
            [
                sum((steps[i, at, token] for at, token in enumerate(choice)), steps.new_zeros(()))
                for i, choice in enumerate(choices)
            ]
        )
        logs.append(tuple(torch.log_softmax(sums, dim=0).tolist()))
    texts = []
    for ask in engines.plies[0]:
        ids = torch.tensor([tokenizer.encode_prompt(ask.prompt)], device=context.device)
        settings = transformers.GenerationConfig(
            max_new_tokens=engines.words.max_tokens,
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
        )
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=settings
        )
        texts.append(tuple(written[0, ids.shape[1] :].tolist()))
    del model
    context.clear()
    return logs, texts
