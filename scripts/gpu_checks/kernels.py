"""Every kernel against its definition in float64, on random inputs, in float32 and 16 bits.

An error is ||out - reference|| / ||reference||. Memory is filled with NaN before each call, so that what a kernel
does not write is seen.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.attention_backend import Part, make_attention
from engine.choice import ChoiceTree
from engine.kv_pool import KVPool, QuantisedKVPool
from engine.model_config import ModelConfig
from gpu_checks.harness import Context

# Float32 is summed in other orders, 16 bits are rounded once or twice on the way (half a step is 2^-9 in bfloat16).
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
_EPS = 1e-5
_EIGHT_BITS = ("int8", "fp8", "float8_e4m3fn")
Pairs = list[tuple[Tensor, Tensor]]  # what came and what is right


@dataclass(frozen=True)
class Check:
    name: str
    dtype: torch.dtype
    run: Callable[[], Pairs]


class Maker:
    """Random tensors on the device, always the same."""

    def __init__(self, context: Context) -> None:
        self.device = context.device
        self._generator = torch.Generator(context.device).manual_seed(1)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
        made = torch.randn(shape, generator=self._generator, device=self.device)
        return (made * scale).to(dtype)

    def ids(self, count: int, below: int) -> Tensor:
        return torch.randint(below, (count,), generator=self._generator, device=self.device)

    def slots(self, count: int, among: int) -> Tensor:
        """Different ones."""
        return torch.randperm(among, generator=self._generator, device=self.device)[:count]

    def poison(self) -> None:
        """Leave NaN in the memory that the next call gets."""
        for size in (1 << 12, 1 << 16, 1 << 20, 1 << 22):
            torch.full((size,), float("nan"), device=self.device)


def kernels(context: Context) -> dict[str, Any]:
    """Run all checks. Raises AssertionError if one fails, after the last."""
    make = Maker(context)
    dtypes = [torch.bfloat16, torch.float32, torch.float16]
    if context.device.type != "cuda":
        dtypes = [torch.float32]  # the interpreter multiplies bfloat16 as integers
    found: dict[str, Any] = {}
    worst: dict[str, float] = {}
    failed: list[str] = []
    skipped = 0
    for check in _all(make, dtypes, context.quick):
        if context.device.type != "cuda" and check.name.split(", ")[1] in _EIGHT_BITS:
            continue  # the interpreter cuts scales off where it is to round them
        if context.left < 2:
            skipped += 1
            continue
        name = f"{check.name}, {str(check.dtype).removeprefix('torch.')}"
        try:
            make.poison()
            error = max(_error(out, right) for out, right in check.run())
        except Exception as problem:
            found[name] = {"error": repr(problem), "traceback": traceback.format_exc()}
            failed.append(name)
            continue
        found[name] = error
        kernel = f"{check.name.split(',')[0]}, {str(check.dtype).removeprefix('torch.')}"
        worst[kernel] = max(worst.get(kernel, 0.0), error)
        if not error <= TOLERANCE[check.dtype]:
            failed.append(name)
    if skipped:
        found["not run"] = skipped
    groups: dict[str, list[str]] = {}
    for kernel, error in worst.items():
        short, dtype = kernel.rsplit(", ", 1)
        groups.setdefault(dtype, []).append(f"{short} {error:.1e}")
    for dtype, errors in groups.items():
        context.add(f"kernels against float64, {dtype}", ", ".join(errors))
    count = len(found) - bool(skipped)
    context.add(
        "kernel checks",
        f"{count - len(failed)} of {count} right",
        "all",
        not failed and not skipped,
    )
    print("\n".join(f"  wrong: {name}: {found[name]}" for name in failed))
    found["failed"] = failed
    return found | ({"error": f"{len(failed)} kernels are wrong"} if failed else {})


def _error(out: Tensor, right: Tensor) -> float:
    assert out.shape == right.shape, f"{tuple(out.shape)} instead of {tuple(right.shape)}"
    apart = (out.double() - right).norm() / right.norm().clamp_min(1e-30)
    return float(apart) if torch.isfinite(apart) else float("inf")


def _all(make: Maker, dtypes: list[torch.dtype], quick: bool) -> Iterator[Check]:
    for dtype in dtypes:
        yield from _norms(make, dtype, quick)
        yield from _places(make, dtype, quick)
        yield from _edges(make, dtype, quick)
        yield from _draws(make, dtype, quick)
        yield from _attention(make, dtype, quick)


# Norms and gates


def _norm64(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    return x * (x.square().mean(dim=-1, keepdim=True) + _EPS).rsqrt() * weight.double()


def _norms(make: Maker, dtype: torch.dtype, quick: bool) -> Iterator[Check]:
    from engine.kernels.activate import activate
    from engine.kernels.norm import add_norm, norm

    for rows, size in ((3, 192), (5, 576)) if quick else ((1, 576), (64, 4096), (300, 5376)):
        x, residual = make.normal(rows, size, dtype=dtype), make.normal(rows, size, dtype=dtype)
        weight, first = make.normal(size, dtype=dtype), make.normal(size, dtype=dtype)

        def plain(x: Tensor = x, weight: Tensor = weight) -> Pairs:
            return [(norm(x, weight, _EPS), _norm64(x, weight))]

        def added(x: Tensor = x, r: Tensor = residual, w: Tensor = weight) -> Pairs:
            total, out = add_norm(x, r, None, w, _EPS)
            right = x.double() + r.double()
            return [(total, right), (out, _norm64(right, w))]

        def twice(
            x: Tensor = x, r: Tensor = residual, f: Tensor = first, w: Tensor = weight
        ) -> Pairs:
            total, out = add_norm(x, r, f, w, _EPS)
            right = _norm64(x, f) + r.double()
            return [(total, right), (out, _norm64(right, w))]

        def gate(x: Tensor = x) -> Pairs:
            half = x.shape[1] // 2
            given, times = x[:, :half].double(), x[:, half:].double()
            silu = torch.nn.functional.silu(given) * times
            gelu = torch.nn.functional.gelu(given, approximate="tanh") * times
            return [(activate(x, "silu"), silu), (activate(x, "gelu_pytorch_tanh"), gelu)]

        yield Check(f"norm, {rows} x {size}", dtype, plain)
        yield Check(f"add_norm, {rows} x {size}", dtype, added)
        yield Check(f"add_norm, twice, {rows} x {size}", dtype, twice)
        yield Check(f"activate, {rows} x {size}", dtype, gate)


# Rotary embedding, head norms and the cache's formats


def _rounded(x: Tensor, kept: torch.dtype) -> Tensor:
    """Vectors as they come back from the cache."""
    from engine.kv_pool import quantise_vectors

    elements, scales = quantise_vectors(x, kept)
    return elements.double() * scales.double()


def _places(make: Maker, dtype: torch.dtype, quick: bool) -> Iterator[Check]:
    from engine.kernels.quantize import read_vectors, write_vectors
    from engine.kernels.rope import place

    shapes = ((3, 6, 3, 32, False),) if quick else (
        (1, 9, 3, 64, False), (64, 32, 8, 128, False), (40, 16, 8, 128, True), (9, 8, 4, 256, True),
    )  # fmt: skip
    for rows, heads, kv_heads, dim, norms in shapes:
        qkv = make.normal(rows, heads + 2 * kv_heads, dim, dtype=dtype)
        positions, slots = make.ids(rows, 500), make.slots(rows, 700)
        weights = make.normal(heads + kv_heads, dim, dtype=dtype) if norms else None
        half = dim // 2
        angles = torch.outer(
            torch.arange(500, device=make.device).double(),
            10000.0 ** (-torch.arange(half, device=make.device).double() / half),
        )
        cos, sin = torch.cat([angles.cos()] * 2, 1), torch.cat([-angles.sin(), angles.sin()], 1)
        rounded = cos.to(dtype), sin.to(dtype)

        def placed(
            qkv: Tensor = qkv,
            positions: Tensor = positions,
            slots: Tensor = slots,
            weights: Tensor | None = weights,
            tables: tuple[Tensor, Tensor] = rounded,
            sizes: tuple[int, int, int] = (heads, kv_heads, dim),
        ) -> Pairs:
            heads, kv_heads, dim = sizes
            data = torch.full(
                (700, 2, kv_heads, dim), float("nan"), dtype=qkv.dtype, device=qkv.device
            )
            queries = place(qkv, positions, slots, tables, dim // 2, weights, _EPS, data, None)
            turned = qkv[:, : heads + kv_heads].double()
            if weights is not None:
                turned = _norm64(turned, weights)
            cos, sin = (table[positions].double().unsqueeze(1) for table in tables)
            turned = (
                turned * cos
                + torch.cat([turned[..., dim // 2 :], turned[..., : dim // 2]], -1) * sin
            )
            values = qkv[:, heads + kv_heads :].double()
            return [
                (queries, turned[:, :heads]),
                (data[slots, 0], turned[:, heads:]),
                (data[slots, 1], values),
            ]

        yield Check(f"place, {heads}/{kv_heads} x {dim}{', norms' if norms else ''}", dtype, placed)
        for kept in (torch.int8, torch.float8_e4m3fn):
            vectors = make.normal(rows, 2 * kv_heads, dim, dtype=dtype, scale=3.0)

            def stored(
                x: Tensor = vectors, slots: Tensor = slots, kept: torch.dtype = kept
            ) -> Pairs:
                heads, dim = x.shape[1:]
                data = torch.zeros((700, heads, dim), dtype=torch.int8, device=x.device).view(kept)
                scales = torch.full(
                    (700, heads, 1), float("nan"), dtype=torch.bfloat16, device=x.device
                )
                write_vectors(x, slots, data, scales)
                back = read_vectors(slots, data, scales, torch.float32)
                right = _rounded(x, kept)
                wrong = float((back.double() - x.double()).norm() / x.double().norm())
                assert wrong < (0.02 if kept == torch.int8 else 0.05), f"{wrong:.3g} from the input"
                return [(back, right)]

            yield Check(f"quantize, {str(kept)[6:]}, {2 * kv_heads} x {dim}", dtype, stored)


# Scores of a few tokens


def _edges(make: Maker, dtype: torch.dtype, quick: bool) -> Iterator[Check]:
    from engine.kernels.choice import edge_logits, edge_logprobs

    shapes = ((5, 96, 850, None),) if quick else (
        (1, 576, 49152, None), (40, 4096, 128256, None), (300, 576, 49152, 30.0),
    )  # fmt: skip
    for rows, width, vocabulary, cap in shapes:
        pairs = 3 * rows

        def scored(
            rows: int = rows,
            width: int = width,
            vocabulary: int = vocabulary,
            cap: float | None = cap,
            pairs: int = pairs,
        ) -> Pairs:
            hidden = make.normal(rows, width, dtype=dtype)
            weight = make.normal(vocabulary, width, dtype=dtype, scale=2.0 * width**-0.5)
            at, tokens = make.ids(pairs, rows), make.ids(pairs, vocabulary)
            logits = hidden.double() @ weight.double().t()
            if cap is not None:
                logits = torch.tanh(logits / cap) * cap
            logs = torch.log_softmax(logits, dim=-1)[at, tokens]
            return [
                (edge_logprobs(hidden, weight, at, tokens, cap), logs),
                (edge_logits(hidden, weight, at, tokens, cap), logits[at, tokens]),
            ]

        yield Check(f"choice, {rows} x {width} x {vocabulary}", dtype, scored)


# Draws of tokens


def _draws(make: Maker, dtype: torch.dtype, quick: bool) -> Iterator[Check]:
    """Against those of torch in float64 sums: of 64 rows one may fall to the other side of a border."""
    from engine.kernels.sampling import sample_tokens
    from engine.params import SamplingParams
    from engine.sampling import Draw, pack, sample

    every = [
        SamplingParams(temperature=0.0),
        SamplingParams(),
        SamplingParams(temperature=0.7, top_p=0.9),
        SamplingParams(top_k=50),
        SamplingParams(temperature=1.5, min_p=0.05, top_k=400, top_p=0.95),
    ]
    rows, vocabulary = (5, 700) if quick else (64, 49152)

    def drawn() -> Pairs:
        logits = make.normal(rows, vocabulary, dtype=dtype, scale=3.0)
        draws = [Draw(every[row % len(every)], row, row) for row in range(rows)]
        params = torch.from_numpy(pack(draws)).to(make.device)
        found = sample_tokens(logits, params).tolist()
        wrong = sum(a != b for a, b in zip(found, sample(logits.float(), draws), strict=True))
        assert wrong <= 1, f"{wrong} of {rows} tokens differ"
        return [(torch.zeros(1), torch.zeros(1))]

    yield Check(f"sampling, {rows} x {vocabulary}", dtype, drawn)


# Attention


def _tree(rng: np.random.Generator, count: int) -> ChoiceTree:
    """Of texts of up to four tokens."""
    choices = {tuple(rng.integers(0, 6, rng.integers(2, 5)).tolist()) for _ in range(count)}
    return ChoiceTree(sorted(choices))


def _parts(
    rng: np.random.Generator, lengths: list[tuple[int, int, int]], num_slots: int
) -> list[Part]:
    """Requests: (tokens, of them rows of this step, choices of a tree). The first half share 3/4 of the shortest."""
    free = rng.permutation(num_slots)
    common = free[: 3 * min(tokens for tokens, *_ in lengths) // 4]
    used = len(common)
    parts = []
    first = 0
    for index, (tokens, rows, choices) in enumerate(lengths):
        tree = _tree(rng, choices) if choices else None
        total = tokens + (tree.num_inner - 1 if tree else 0)
        slots = free[used : used + total].copy()
        used += total
        if index < (len(lengths) + 1) // 2:
            slots[: len(common)] = common
        for low in range(tokens - rows, total, 256):
            high = min(low + 256, total)
            parts.append(Part(first, low, slots[:high], tokens, tree))
            first += high - low
    return parts


_Setting = tuple[str, int | None, float | None, torch.dtype | None, bool]
_SETTINGS: tuple[_Setting, ...] = (
    # name, window, soft cap, the cache's dtype, in order
    ("plain", None, None, None, False),
    ("in order", None, None, None, True),
    ("window", 20, None, None, False),
    ("soft cap", None, 30.0, None, False),
    ("int8", None, None, torch.int8, False),
    ("fp8", None, None, torch.float8_e4m3fn, False),
)


def _attention(make: Maker, dtype: torch.dtype, quick: bool) -> Iterator[Check]:
    """Every combination is compiled anew, in one to two seconds, so there are few: all settings for one shape in
    bfloat16, all shapes plain, and little in other dtypes."""
    loads = {
        "mixed": [(300, 1, 30), (280, 1, 0), (270, 20, 0), (40, 40, 0), (700, 1, 20), (1, 1, 0)],
        "64 rows": [(500 + i, 1, 0) for i in range(64)],
        "long": [(6000, 300, 0), (9000, 1, 40)],
    }
    main, small, gemma = (32, 8, 128), (9, 3, 64), (8, 4, 256)
    plain, in_order, *others = _SETTINGS
    if quick:
        loads = {"mixed": [(40, 1, 8), (38, 1, 0), (30, 5, 0), (1, 1, 0)]}
        wanted = [((6, 3, 32), "mixed", setting) for setting in _SETTINGS]
    elif dtype == torch.bfloat16:
        wanted = [(main, load, plain) for load in loads]
        wanted += [(main, load, in_order) for load in loads]
        wanted += [(main, "mixed", setting) for setting in others]
        wanted += [(shape, "mixed", plain) for shape in (small, gemma, (14, 2, 64), (4, 4, 96))]
        wanted += [(gemma, "long", _SETTINGS[2])]
    elif dtype == torch.float32:
        wanted = [(small, "mixed", plain), (small, "mixed", in_order), (main, "long", plain)]
    else:
        wanted = [(main, "mixed", plain)]
    for sizes, load, setting in wanted:
        heads, kv_heads, dim = sizes

        def attended(
            lengths: list[tuple[int, int, int]] = loads[load],
            sizes: tuple[int, int, int] = sizes,
            setting: _Setting = setting,
        ) -> Pairs:
            return _attend(make, dtype, lengths, sizes, *setting[1:])

        yield Check(f"attention, {setting[0]}, {load}, {heads}/{kv_heads} x {dim}", dtype, attended)


def _attend(
    make: Maker,
    dtype: torch.dtype,
    lengths: list[tuple[int, int, int]],
    sizes: tuple[int, int, int],
    window: int | None,
    cap: float | None,
    kept: torch.dtype | None,
    in_order: bool,
) -> Pairs:
    from engine.kernels.attention import attend_definition

    heads, kv_heads, dim = sizes
    model = ModelConfig.from_dict(
        {
            "architectures": ["MistralForCausalLM"],
            "vocab_size": 100,
            "hidden_size": heads * dim,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": dim,
            "sliding_window": window,
        }
    )
    rng = np.random.default_rng(5)
    num_slots = sum(tokens + 4 * choices for tokens, _, choices in lengths) + 64
    parts = _parts(rng, lengths, num_slots)
    device = make.device
    shape = (1, num_slots, kv_heads, dim)
    pool = (
        KVPool(*shape, dtype, device)
        if kept is None
        else QuantisedKVPool(*shape, dtype, device, kept)
    )
    pool.write(
        0,
        torch.arange(num_slots, device=device),
        make.normal(num_slots, 2, kv_heads, dim, dtype=dtype),
    )
    rows = sum(part.end - part.start for part in parts)
    queries = make.normal(rows, heads, dim, dtype=dtype)
    right = attend_definition(queries, pool, 0, parts, model.attention_scale, cap, window)
    backend = make_attention("triton", model, device, dtype, in_order)

    def put(array: Any) -> Tensor:
        return torch.from_numpy(array).to(device)

    full, windowed = backend.plan(parts, rows, put)
    plan = full if window is None else windowed
    assert plan is not None
    make.poison()
    return [(plan.attend(queries, pool, 0, model.attention_scale, cap), right)]
