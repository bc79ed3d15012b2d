"""Runs the model over the rows of one step and turns its outputs into scores and tokens.

It knows requests only as rows with slots; what to compute was decided by the scheduler.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.attention import Mask, Span, group_spans
from engine.choice import Floats, Ids
from engine.model import Batch, Decoder
from engine.request import ChoiceTask, Request
from engine.sampling import Draw, sample
from engine.scheduler import Chunk
from engine.text import TextTask

_NORMALISER_ROWS = 64  # rows whose logits over the vocabulary are in float32 at a time


class ModelRunner:
    """One pass through the weights per step, for all requests together."""

    def __init__(self, decoder: Decoder, num_slots: int) -> None:
        self.decoder = decoder
        self.pool = decoder.new_pool(num_slots)

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk]) -> list[Floats | int | None]:
        """Compute the rows. For each chunk: log probabilities of the edges of the inner nodes it covers, or the
        next token of a text, or None when nothing of it was asked for yet."""
        outputs = [np.arange(*scored_rows(chunk)) for chunk in chunks]
        starts = np.cumsum([0] + [chunk.end - chunk.start for chunk in chunks])
        out_rows = np.concatenate(
            [rows - chunk.start + at for rows, chunk, at in zip(outputs, chunks, starts, strict=False)]
        )
        hidden = self.decoder.forward(self._batch(chunks, starts, out_rows), self.pool)
        results: list[Floats | int | None] = [None] * len(chunks)
        texts: list[int] = []
        text_rows: list[int] = []
        edge_rows: list[Ids] = []
        edge_tokens: list[Ids] = []
        edge_counts: list[tuple[int, int]] = []
        at = 0
        for index, (chunk, rows) in enumerate(zip(chunks, outputs, strict=True)):
            if not len(rows):
                continue
            task = chunk.request.task
            if isinstance(task, ChoiceTask):
                first, last = scored_nodes(chunk)
                low, high = task.tree.first_edges[first], task.tree.first_edges[last]
                edge_rows.append(task.tree.edge_rows[low:high] - first + at)
                edge_tokens.append(task.tree.edge_tokens[low:high])
                edge_counts.append((index, int(high - low)))
            else:
                texts.append(index)
                text_rows.append(at)
            at += len(rows)
        if edge_counts:
            scores = self._edge_logprobs(hidden, np.concatenate(edge_rows), np.concatenate(edge_tokens))
            at = 0
            for index, count in edge_counts:
                results[index] = scores[at : at + count]
                at += count
        if texts:
            draws = [_draw(chunks[index].request) for index in texts]
            logits = self.decoder.logits(hidden[torch.tensor(text_rows)]).float()
            for index, token in zip(texts, sample(logits, draws), strict=True):
                results[index] = token
        return results

    def _batch(self, chunks: Sequence[Chunk], starts: Ids, out_rows: Ids) -> Batch:
        tokens: list[Ids] = []
        positions: list[Ids] = []
        slots: list[Ids] = []
        spans: list[Span] = []
        for chunk, first in zip(chunks, starts, strict=False):
            request, start, end = chunk.request, chunk.start, chunk.end
            length = len(request.tokens)
            if start < length:
                tokens.append(np.array(request.tokens[start : min(end, length)], dtype=np.int64))
                positions.append(np.arange(start, min(end, length)))
            if end > length:
                assert request.tree is not None
                nodes = slice(max(start - length, 0) + 1, end - length + 1)
                tokens.append(request.tree.tokens[nodes])
                positions.append(request.tree.depths[nodes] + (length - 1))
            slots.append(request.slots[start:end])
            spans.append(Span(int(first), request.slots[:end], _mask(chunk)))
        device = self.decoder.device

        def tensor(arrays: list[Ids]) -> Tensor:
            return torch.from_numpy(np.concatenate(arrays)).to(device)

        return Batch(
            token_ids=tensor(tokens),
            positions=tensor(positions),
            slots=tensor(slots),
            groups=group_spans(spans, device, self.decoder.dtype),
            out_rows=torch.from_numpy(out_rows).to(device),
        )

    def _edge_logprobs(self, hidden: Tensor, rows: Ids, tokens: Ids) -> Floats:
        """log p(token | row) for pairs of a row and a token; `rows` ascend."""
        result = np.empty(len(rows))
        for first in range(0, len(hidden), _NORMALISER_ROWS):
            low, high = np.searchsorted(rows, [first, first + _NORMALISER_ROWS])
            if low == high:
                continue
            logits = self.decoder.logits(hidden[first : first + _NORMALISER_ROWS]).float()
            norms = torch.logsumexp(logits, dim=-1)
            row = torch.from_numpy(rows[low:high] - first).to(logits.device)
            token = torch.from_numpy(tokens[low:high]).to(logits.device)
            result[low:high] = (logits[row, token] - norms[row]).double().cpu().numpy()
        return result


def scored_rows(chunk: Chunk) -> tuple[int, int]:
    """The rows of a request within a chunk whose outputs are asked for."""
    return max(chunk.start, min(len(chunk.request.tokens) - 1, chunk.end)), chunk.end


def scored_nodes(chunk: Chunk) -> tuple[int, int]:
    """The inner nodes of the choice tree that those rows stand for."""
    request = chunk.request
    first, last = scored_rows(chunk)
    if request.tree is None:
        return request.walk_node, request.walk_node + last - first
    return first - len(request.tokens) + 1, last - len(request.tokens) + 1


def _mask(chunk: Chunk) -> Mask:
    """[rows, keys]: a token sees what is before it and itself; an inner node its prompt and its ancestors."""
    request, start, end = chunk.request, chunk.start, chunk.end
    length = len(request.tokens)
    mask = np.tri(end - start, end, start, dtype=np.bool_)
    if end > length:
        assert request.tree is not None
        first = max(start, length)
        above = request.tree.ancestors()
        mask[first - start :, length:] = above[
            first - length + 1 : end - length + 1, 1 : end - length + 1
        ]
    return mask


def _draw(request: Request) -> Draw:
    assert isinstance(request.task, TextTask)
    return Draw(request.task.params, request.seed, len(request.task.token_ids))
