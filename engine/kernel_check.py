"""Whether this device keeps the promise of `EngineConfig.deterministic`: asked once, when an engine is built."""

import numpy as np
import torch
from torch import Tensor

from engine.attention_backend import AttentionBackend, Part
from engine.errors import ModelLoadError
from engine.fixed_order import MIN_ROWS
from engine.model import Batch, Decoder


def check_kernels(decoder: Decoder, attention: AttentionBackend) -> None:
    """Compute a prompt three times in one step, then once in steps of few rows, and compare the bits.

    Raises ModelLoadError if they differ, which means that this device's kernels sum a row in an order that depends
    on the rows beside it.
    """
    length = min(80, decoder.max_len)
    tokens = torch.arange(length) * 7919 % decoder.config.vocab_size
    whole = _hidden(decoder, attention, tokens, range(0, length, length), 3)
    parts = _hidden(decoder, attention, tokens, range(0, length, MIN_ROWS), 1)
    same = bool((whole.view(3, length, -1) == parts).all())
    last = parts[-1:].expand(MIN_ROWS, -1).contiguous()
    if not same or not torch.equal(decoder.logits(whole)[-1], decoder.logits(last)[-1]):
        raise ModelLoadError(
            "On this device a row's result depends on the rows beside it, so deterministic cannot be kept; "
            "use dtype float32 or set deterministic to False."
        )


def _hidden(
    decoder: Decoder, attention: AttentionBackend, tokens: Tensor, starts: range, copies: int
) -> Tensor:
    """[copies * tokens, hidden] of equal prompts, whose rows from each of `starts` on make up a step."""
    pool = decoder.new_pool(copies * len(tokens))
    results: list[Tensor] = []
    for start in starts:
        end = min(start + starts.step, len(tokens))
        rows = end - start
        slots = np.arange(copies * len(tokens)).reshape(copies, -1)
        parts = [Part(i * rows, start, slots[i, :end], len(tokens)) for i in range(copies)]
        count = max(copies * rows, MIN_ROWS)
        order = torch.from_numpy(np.resize(np.arange(copies * rows), count))
        full, windowed = attention.plan(
            parts, count, lambda array: torch.from_numpy(array).to(decoder.device)
        )
        batch = Batch(
            token_ids=tokens[start:end].repeat(copies)[order].to(decoder.device),
            positions=torch.arange(start, end).repeat(copies)[order].to(decoder.device),
            slots=torch.from_numpy(slots[:, start:end].copy())
            .reshape(-1)[order]
            .to(decoder.device),
            attention=full,
            windowed=windowed,
            out_rows=torch.arange(count, device=decoder.device),
        )
        results.append(decoder.forward(batch, pool)[: copies * rows])
    return torch.cat(results)
