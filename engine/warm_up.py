"""Steps of pretended requests: to see what the largest one takes, and to record and compile what common ones need.

Their rows go to slots that nobody uses yet. The scheduler and the cache know nothing of them.
"""

import numpy as np

from engine.choice import ChoiceTree
from engine.params import ChoiceParams, SamplingParams
from engine.request import ChoiceTask, Request
from engine.scheduler import Chunk
from engine.text import TextTask
from engine.tokenizer import Tokenizer

_NODES = 64  # inner nodes of a tree


def texts(count: int, context: int, num_slots: int, tokenizer: Tokenizer) -> list[Chunk]:
    """A step in which `count` texts get a token each, every one after `context` tokens."""
    params = SamplingParams(max_tokens=1, top_p=0.9)
    task = TextTask(params, 1, tokenizer)
    requests = [Request(f"text {i}", [0] * (context + 1), task, 0) for i in range(count)]
    return [_chunk(request, i, context, num_slots) for i, request in enumerate(requests)]


def choices(
    rows: int, most_requests: int, context: int, num_slots: int, vocab_size: int
) -> list[Chunk]:
    """A step of `rows` inner nodes of trees in all, every one with the whole vocabulary as normaliser, after `context`
    tokens."""
    nodes = min(max(_NODES, -(-rows // most_requests)), vocab_size, rows)
    chunks: list[Chunk] = []
    while rows > 0:
        nodes = min(nodes, rows)
        rows -= nodes
        ids: list[tuple[int, ...]] = [(token, 0) for token in range(nodes - 1)] or [(0,)]
        task = ChoiceTask(tuple(map(str, ids)), ChoiceTree(ids), ChoiceParams())
        request = Request(f"choice {len(chunks)}", [0] * (context + 1), task, 0)
        chunks.append(_chunk(request, len(chunks), context, num_slots))
    return chunks


def _chunk(request: Request, index: int, context: int, num_slots: int) -> Chunk:
    # Each begins elsewhere, so that no two have a prefix in common.
    request.slots = (np.arange(request.num_rows) + 7 * index) % num_slots
    request.num_computed = request.num_rows
    return Chunk(request, context, request.num_rows)
