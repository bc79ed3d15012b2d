"""How fast: decoding over the roofline, moves, shared prefixes, CUDA graphs, a stampede, preemption, and transformers'
continuous batching on the same requests. Every engine has random weights, which cost what others cost."""

from __future__ import annotations

import time
from dataclasses import asdict, fields
from typing import Any, Literal

import numpy as np
import torch
from move_load import rounds

from engine import LLM, ChoiceParams, SamplingParams, capacity
from engine.request import Request
from gpu_checks.harness import Context, ceilings

Scoring = Literal["likelihood", "masked"]
LARGE, MIDDLE, SMALL, TINY = "Llama-3.1-8B", "Qwen3-1.7B", "SmolLM2-135M", "tiny"
GIB = 1 << 30


def device(context: Context) -> dict[str, Any]:
    """What the device reaches with plain torch, beside its data sheet."""
    found, sheet = ceilings(context.device), context.rates
    context.add(
        f"{sheet.name}: copy, product in 16 bits",
        f"{found['bandwidth'] / 1e12:.2f} TB/s, {found['bf16'] / 1e12:.0f} TFLOP/s",
        f"data sheet {sheet.bandwidth / 1e12:.2f}, {sheet.bf16 / 1e12:.0f}",
    )
    return {"measured": found, "data_sheet": asdict(sheet)}


# Decoding


def decode_large(context: Context) -> dict[str, Any]:
    """Free texts by 1 to 256 streams with 8B weights."""
    return {LARGE: _decode(context, LARGE, goal=True)}


def decode_others(context: Context) -> dict[str, Any]:
    """The same with smaller models, while there is time."""
    return {shape: _decode(context, shape) for shape in (SMALL, MIDDLE, TINY) if context.left > 12}


def _decode(context: Context, shape: str, goal: bool = False) -> dict[str, Any]:
    streams = (1, 4) if context.quick else (1, 8, 32, 64, 128, 256)
    found: dict[str, Any] = {}
    with context.engine(shape, max_num_seqs=max(streams), max_model_len=1024) as llm:
        found["cached tokens that fit"] = llm.stats().kv_pages_total
        for count in streams:
            if context.left < 3:
                break
            found[str(count)] = _decode_at(context, llm, count)
    rates = {count: row["tokens/s"] for count, row in found.items() if count.isdigit()}
    shares = {count: row["of roofline"] for count, row in found.items() if count.isdigit()}
    context.add(
        f"decode {shape}, tokens/s",
        ", ".join(f"{count}: {rate:,.0f}" for count, rate in rates.items()),
    )
    context.add(
        f"decode {shape}, of the roofline",
        ", ".join(f"{count}: {share:.0%}" for count, share in shares.items()),
        ">= 70% at 1 stream" if goal else "",
        shares.get("1", 0.0) >= 0.7 if goal else None,
    )
    if goal and "32" in rates:
        gain = rates["32"] / rates["1"]
        context.add(f"decode {shape}, 32 streams over 1", f"{gain:.1f} x", "near 32 x")
    return found


def _decode_at(context: Context, llm: LLM, streams: int) -> dict[str, float]:
    """Steps in which every one of `streams` texts gets a token, none of them sharing a prompt."""
    core = llm._core
    length, steps = (16, 3) if context.quick else (128, 32)
    rng = np.random.default_rng(streams)
    params = SamplingParams(max_tokens=steps + 64, temperature=0, ignore_eos=True)
    requests: list[Request] = []
    for _ in range(streams):
        prompt = rng.integers(1, 200, length).tolist()
        requests.append(core.intake.make_text(prompt, params))
        core.add(requests[-1])
    while any(request.first_token_at is None for request in requests):
        core.step()
    for _ in range(3):  # so that what is recorded at second sight has been
        core.step()
    context.sync()
    started = time.perf_counter()
    for _ in range(steps):
        core.step()
    context.sync()
    seconds = (time.perf_counter() - started) / steps
    for request in requests:
        core.abort(request)
    model = core.runner.decoder.config
    load = capacity.Load(streams, 1, length + 5 + steps / 2, normalised=1)
    weights: capacity.WeightFormat = "float32" if context.dtype == "float32" else "bfloat16"
    bound = capacity.predict(model, load, context.rates, weights, core.kv_dtype)
    return {
        "tokens/s": streams / seconds,
        "step_ms": 1e3 * seconds,
        "roofline_ms": 1e3 * bound.seconds,
        "of roofline": bound.seconds / seconds,
        "GB/s": bound.bytes / seconds / 1e9,
    }


def graphs(context: Context) -> dict[str, Any]:
    """Decoding with recorded steps and without."""
    streams = (1, 4) if context.quick else (1, 8, 32, 128)
    found: dict[str, Any] = {}
    for shape in (SMALL, LARGE) if context.left > 30 else (SMALL,):
        for name, eager in (("graphs", False), ("eager", True)):
            if context.left < 8:
                break
            settings = {"max_num_seqs": max(streams), "max_model_len": 1024}
            with context.engine(shape, enforce_eager=eager, **settings) as llm:
                rows = {str(n): _decode_at(context, llm, n) for n in streams}
                if (recorded := llm._core.runner._graphs) is not None:
                    rows["recorded"] = {"graphs": len(recorded), "replays": recorded.replays}
                del recorded  # it holds the weights
                found[f"{shape}, {name}"] = rows
        if f"{shape}, eager" in found:
            with_graphs, without = found[f"{shape}, graphs"], found[f"{shape}, eager"]
            gains = (
                f"{n}: {without[str(n)]['step_ms'] / with_graphs[str(n)]['step_ms']:.2f} x"
                for n in streams
            )
            context.add(f"CUDA graphs over eager, {shape}", ", ".join(gains))
    return found


# Moves


def moves(context: Context) -> dict[str, Any]:
    """Move requests of 1 to 128 streams, exact and masked, over a warm cache."""
    streams = (1, 4) if context.quick else (1, 8, 32, 128)
    found: dict[str, Any] = {}
    for shape in (LARGE, SMALL, MIDDLE, TINY):
        if context.left < 10:
            break
        with _move_engine(context, shape, max(streams)) as llm:
            rows: dict[str, Any] = {}
            for count in streams:
                if context.left < 4:
                    break
                rows[str(count)] = {
                    scoring: _moves_at(context, llm, count, scoring)
                    for scoring in ("likelihood", "masked")
                }
        found[shape] = rows
        _add_moves(context, shape, rows)
    return found


def _move_engine(context: Context, shape: str, streams: int) -> Any:
    return context.engine(
        shape, max_num_seqs=streams, max_num_batched_tokens=4096, max_model_len=1024
    )


def _add_moves(context: Context, shape: str, rows: dict[str, Any]) -> None:
    rates = {n: [row[s]["moves/s"] for s in ("likelihood", "masked")] for n, row in rows.items()}
    context.add(
        f"moves/s {shape}, exact / masked",
        ", ".join(f"{n}: {exact:,.0f} / {masked:,.0f}" for n, (exact, masked) in rates.items()),
    )
    ratios = {n: exact / masked for n, (exact, masked) in rates.items()}
    best = max(ratios.values(), default=0.0)
    context.add(
        f"exact over masked, {shape}",
        ", ".join(f"{n}: {ratio:.2f} x" for n, ratio in ratios.items()),
        ">= 2.5 x" if shape == LARGE else "",
        best >= 2.5 if shape == LARGE else None,
    )
    shares = (f"{n}: {row['likelihood']['of roofline']:.0%}" for n, row in rows.items())
    context.add(f"exact moves {shape}, of the roofline", ", ".join(shares))


def _moves_at(context: Context, llm: LLM, streams: int, scoring: Scoring) -> dict[str, float]:
    plies = 2 if context.quick else 4
    params = ChoiceParams(scoring=scoring, temperature=0)
    seconds = 0.0
    before = llm.stats()
    # Other games for each number of streams, so that nobody profits from the last one's.
    asked = rounds(streams, plies + 1, first=3 if context.quick else 20, seed=streams)
    for ply, asks in enumerate(asked):
        prompts, choices = [ask.prompt for ask in asks], [ask.choices for ask in asks]
        if ply == 1:  # the first fills the cache
            before = llm.stats()
        started = time.perf_counter()
        llm.choose(prompts, choices, params)
        seconds += time.perf_counter() - started if ply else 0.0
    after = llm.stats()
    steps = after.steps - before.steps
    rows = after.computed_tokens - before.computed_tokens
    scored = after.scored_rows - before.scored_rows
    load = capacity.Load(
        streams,
        rows / steps / streams,
        len(llm.tokenizer.encode(prompts[0])),
        shared=275.0 if streams > 1 else 0.0,
        normalised=scored / steps / streams if scoring == "likelihood" else 0.0,
        edges=0.0 if scoring == "likelihood" else 3.0,
    )
    weights: capacity.WeightFormat = "float32" if context.dtype == "float32" else "bfloat16"
    model = llm._core.runner.decoder.config
    bound = capacity.predict(model, load, context.rates, weights).seconds * steps
    return {
        "moves/s": plies * streams / seconds,
        "ms a round": 1e3 * seconds / plies,
        "steps a round": steps / plies,
        "rows a round": rows / plies,
        "of roofline": bound / seconds,
    }


def transformers_batching(context: Context) -> dict[str, Any]:
    """The same prompts for transformers' continuous batching, which writes four tokens for each, legal or not."""
    found: dict[str, Any] = {}
    streams = 3 if context.quick else 32
    for shape in (SMALL, LARGE):
        if context.left < 20 and found:
            break
        with _move_engine(context, shape, streams) as llm:
            ours = {s: _moves_at(context, llm, streams, s) for s in ("likelihood", "masked")}
            tokenizer = llm.tokenizer
            config = llm._core.config.model
        theirs = _continuous(context, config, tokenizer, streams)
        found[shape] = ours | {"transformers": theirs}
        ratio = ours["likelihood"]["moves/s"] / theirs["moves/s"]
        masked = ours["masked"]["moves/s"] / theirs["moves/s"]
        context.add(
            f"over transformers, {shape}, {streams} streams",
            f"exact {ratio:.1f} x, masked {masked:.1f} x ({theirs['moves/s']:.1f} moves/s)",
            ">= 5 x",
            ratio >= 5,
        )
    return found


def _continuous(context: Context, model_dir: str, tokenizer: Any, streams: int) -> dict[str, float]:
    import transformers
    from transformers.generation import ContinuousBatchingConfig

    config = transformers.AutoConfig.from_pretrained(model_dir)
    with torch.device(context.device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, context.dtype), attn_implementation="sdpa"
        )
    model.requires_grad_(False)
    # Version 5.24 has page_size where 5.17 has block_size.
    names = {field.name for field in fields(ContinuousBatchingConfig)}
    page = "page_size" if "page_size" in names else "block_size"
    manager = model.init_continuous_batching(
        generation_config=transformers.GenerationConfig(
            do_sample=False, eos_token_id=-1, pad_token_id=0
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            **{page: 32}, num_blocks=2048, max_batch_tokens=4096
        ),
    )
    manager.start()
    plies = 2 if context.quick else 4
    seconds = 0.0
    try:
        asked = rounds(streams, plies + 1, first=3 if context.quick else 20, seed=streams)
        for ply, asks in enumerate(asked):
            ids = [tokenizer.encode(ask.prompt) for ask in asks]
            started = time.perf_counter()
            wanted = set(manager.add_requests(ids, max_new_tokens=4))
            while wanted:
                result = manager.get_result(timeout=1)
                if result is None:
                    if not manager.is_running() or context.left < 0:
                        raise RuntimeError("transformers' generation thread has stopped")
                elif result.is_finished():
                    if result.error is not None:
                        raise RuntimeError(result.error)
                    wanted.discard(result.request_id)
            seconds += time.perf_counter() - started if ply else 0.0
    finally:
        manager.stop(block=True, timeout=10)
    return {"moves/s": plies * streams / seconds, "ms a round": 1e3 * seconds / plies}


# Prefixes and memory


def prefix(context: Context) -> dict[str, Any]:
    """One layer's attention of 64 rows over 2,048 common keys: read once for all against once for each row."""
    from model_shapes import SHAPES

    from engine.attention_backend import Part, make_attention
    from engine.kv_pool import KVPool
    from engine.model_config import ModelConfig

    rows, common, own = (4, 64, 4) if context.quick else (64, 2048, 32)
    model = ModelConfig.from_dict(SHAPES[TINY if context.quick else LARGE])
    dtype = getattr(torch, context.dtype)
    place = context.device
    slots = rows * (common + own)
    pool = KVPool(1, slots, model.num_kv_heads, model.head_dim, dtype, place)
    shape = (slots, 2, model.num_kv_heads, model.head_dim)
    made = torch.randn((common + own, *shape[1:]), device=place)
    for row in range(rows):  # every row's keys are the same, so that both ways give the same
        first = row * (common + own)
        at = torch.arange(first, first + common + own, device=place)
        pool.write(0, at, made.to(dtype))
    backend = make_attention("triton", model, place, dtype)
    queries = torch.randn(rows, model.num_heads, model.head_dim, device=place).to(dtype)

    def put(array: Any) -> torch.Tensor:
        return torch.from_numpy(array).to(place)

    def plan(shared: bool) -> Any:
        parts = []
        for row in range(rows):
            at = np.arange(row * (common + own), (row + 1) * (common + own))
            if shared:
                at[:common] = np.arange(common)
            parts.append(Part(row, common + own - 1, at, common + own))
        return backend.plan(parts, rows, put)[0]

    found: dict[str, Any] = {}
    outputs = {}
    for name, shared in (("shared", True), ("plain", False)):
        made_plan = plan(shared)

        def attend(it: Any = made_plan) -> torch.Tensor:
            return it.attend(queries, pool, 0, model.attention_scale, None)

        outputs[name] = attend().double()
        seconds = context.seconds(attend, 20)
        keys = common + rows * own if shared else rows * (common + own)
        moved = keys * 2 * model.num_kv_heads * model.head_dim * dtype.itemsize
        found[name] = {"us": 1e6 * seconds, "GB/s": moved / seconds / 1e9}
    apart = (outputs["shared"] - outputs["plain"]).norm() / outputs["plain"].norm()
    gain = found["plain"]["us"] / found["shared"]["us"]
    found |= {"gain": gain, "relative difference": float(apart)}
    context.add(
        f"shared prefix, {common} keys x {rows} rows",
        f"{found['shared']['us']:.0f} us against {found['plain']['us']:.0f} us: {gain:.1f} x",
        ">= 3 x",
        gain >= 3,
    )
    assert apart < 0.02, f"the two ways differ by {apart:.3g}"
    return found


def stampede(context: Context) -> dict[str, Any]:
    """Many cold requests at once with a long prompt in common: it is computed once."""
    streams, system = (4, 100) if context.quick else (256, 2000)
    shape = TINY if context.quick else MIDDLE
    with context.engine(
        shape, max_num_seqs=streams, max_num_batched_tokens=4096, max_model_len=4096
    ) as llm:
        [warm] = rounds(streams, 1, first=2, system=60, seed=1)
        choices = [ask.choices for ask in warm]
        llm.choose([ask.prompt for ask in warm], choices, cache_salt="another cache")
        [asks] = rounds(streams, 1, first=2 if context.quick else 12, system=system, seed=2)
        before, started = llm.stats(), time.perf_counter()
        outputs = llm.choose([ask.prompt for ask in asks], [ask.choices for ask in asks])
        seconds = time.perf_counter() - started
        after = llm.stats()
        computed = after.computed_tokens - before.computed_tokens
        nodes = sum(output.metrics.scored_rows for output in outputs) - streams
        unique = len(_trie([llm.tokenizer.encode(ask.prompt) for ask in asks])) + nodes
        known = sum(output.metrics.cached_tokens for output in outputs)
    context.add(
        f"stampede, {streams} cold requests, {shape}",
        f"{1e3 * seconds:.0f} ms, {computed / unique:.3f} x their unique rows computed",
        "near 1 x",
    )
    return {
        "seconds": seconds,
        "steps": after.steps - before.steps,
        "computed": computed,
        "unique": unique,
        "cached": known,
    }


def _trie(prompts: list[list[int]]) -> set[tuple[int, int]]:
    """The different beginnings of all prompts, each as a number of its own."""
    known: dict[tuple[int, int], int] = {}
    for prompt in prompts:
        node = 0
        for token in prompt:
            node = known.setdefault((node, token), len(known) + 1)
    return set(known)


def preemption(context: Context) -> dict[str, Any]:
    """Texts that outgrow half of the memory they want, against all of it."""
    # Half of the lengths: the scheduler keeps 256 tokens free for each text, and no more.
    streams, length = (4, 300) if context.quick else (48, 512)
    shape = TINY if context.quick else SMALL
    params = SamplingParams(max_tokens=length, temperature=0, ignore_eos=True)
    prompts = [np.random.default_rng(i).integers(1, 200, 32).tolist() for i in range(streams)]
    found: dict[str, Any] = {}
    texts: dict[str, list[tuple[int, ...]]] = {}
    for name, tokens in (
        ("ample", streams * (length + 64)),
        ("half", streams * length // 2),
    ):
        with context.engine(shape, max_num_seqs=streams, max_model_len=1024) as probe:
            each = probe._core.runner.decoder.config.kv_bytes_per_token(probe._core.kv_dtype)
        settings = {
            "max_num_seqs": streams,
            "max_model_len": 1024,
            "kv_cache_memory": tokens * each,
        }
        with context.engine(shape, **settings) as llm:
            started = time.perf_counter()
            texts[name] = [output.token_ids for output in llm.generate(prompts, params)]
            stats = llm.stats()
            found[name] = {
                "seconds": time.perf_counter() - started,
                "preemptions": stats.preemptions,
                "recomputed": stats.recomputed_tokens,
                "computed": stats.computed_tokens,
            }
    half, ample = found["half"], found["ample"]
    same = sum(a == b for a, b in zip(texts["half"], texts["ample"], strict=True))
    found["same texts"] = f"{same} of {streams}"
    context.add(
        f"half of the memory, {streams} texts, {shape}",
        f"{half['seconds'] / ample['seconds']:.2f} x the time, {half['preemptions']} preemptions, "
        f"{half['recomputed']} rows again",
    )
    return found
