"""Runs the model over the rows of one step and turns its outputs into scores and tokens.

It knows requests only as rows with slots; what to compute was decided by the scheduler.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.attention_backend import PART_ROWS, BackendName, Part, make_attention
from engine.choice import Floats, Ids
from engine.fixed_order import MIN_ROWS
from engine.graphs import CudaGraph, Graphs, Record, padded_size, row_sizes
from engine.kernel_check import check_kernels
from engine.model import Batch, Decoder
from engine.request import ChoiceTask, Request
from engine.sampling import Draw, pack, sample
from engine.scheduler import Chunk
from engine.staging import Staging, fetch
from engine.text import TextTask

_MOST = 128  # graphs kept
_LOG2_E = math.log2(math.e)

# Log probabilities of edges, the next token of a text (see `sample`), or None: nothing was asked for yet.
Result = Floats | int | None


@dataclass(eq=False)
class _Edges:
    """Pairs of an output row and a token whose scores are asked for, and how many are for which chunk."""

    rows: list[Ids] = field(default_factory=list)
    tokens: list[Ids] = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)

    def pairs(self) -> tuple[Ids, Ids]:
        return np.concatenate(self.rows), np.concatenate(self.tokens)

    def hand_out(self, found: Tensor, results: list[Result]) -> None:
        scores: Floats = found.double().numpy()
        at = 0
        for index, count in self.counts:
            results[index] = scores[at : at + count]
            at += count


class ModelRunner:
    """One pass through the weights per step, for all requests together."""

    def __init__(
        self,
        decoder: Decoder,
        num_slots: int,
        deterministic: bool = False,
        kv_dtype: torch.dtype | None = None,
        attention_backend: BackendName | None = None,
    ) -> None:
        """deterministic: a request's numbers have the same bits in every step and batch. Raises ModelLoadError
        where the device cannot keep that. kv_dtype: in which keys and values are kept, None for the model's.
        attention_backend: see `make_attention`."""
        self.decoder = decoder
        self._staging = Staging(decoder.device)
        self._min_rows = MIN_ROWS if deterministic else 0
        self._attention = make_attention(
            attention_backend, decoder.config, decoder.device, decoder.dtype, deterministic
        )
        if deterministic:
            with torch.inference_mode():
                check_kernels(decoder, self._attention)
        self._kv_dtype = kv_dtype
        self._graphs: Graphs | None = None
        self._sizes: tuple[int, ...] = ()
        self.resize(num_slots)

    def resize(self, num_slots: int) -> None:
        """Another cache, of so many tokens; what was in the last one is lost."""
        self.num_slots = num_slots
        self.__dict__.pop("pool", None)  # before there is another
        # One more for the rows that fill a step up: nobody else reads what they write.
        spare = 1 if self._sizes else 0
        self.pool = self.decoder.new_pool(num_slots + spare, self._kv_dtype)

    def record_steps(self, largest: int, record: Record | None = None) -> None:
        """From the next `resize` on fill steps of up to `largest` rows up to a few sizes, record the model's pass for
        each, and replay it. record: how; None for CUDA graphs."""
        if record is None:
            memory = torch.cuda.graph_pool_handle()
            record = partial(CudaGraph, pool=memory)
        self._sizes = row_sizes(largest)
        self._graphs = Graphs(lambda batch: self.decoder.forward(batch, self.pool), record, _MOST)

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        """Compute the rows. For each chunk: log probabilities of the edges of the inner nodes it covers, or the
        next token of a text, or None."""
        return self.launch(chunks)()

    @torch.inference_mode()
    def launch(self, chunks: Sequence[Chunk]) -> Callable[[], list[Result]]:
        """Begin what `run` does; the function returned waits for the results. A GPU works meanwhile."""
        self._staging.begin()
        outputs = [np.arange(*scored_rows(chunk)) for chunk in chunks]
        starts = np.cumsum([0] + [chunk.end - chunk.start for chunk in chunks])
        offsets = [first - chunk.start for first, chunk in zip(starts, chunks, strict=False)]
        out_rows = np.concatenate([r + at for r, at in zip(outputs, offsets, strict=True)])
        size = padded_size(int(starts[-1]), self._sizes)
        batch = self._batch(chunks, starts, out_rows, size)
        if self._graphs is None or size is None:
            hidden = self.decoder.forward(batch, self.pool)
        else:
            hidden = self._graphs(batch)[: len(out_rows)]
        texts: list[int] = []
        text_rows: list[int] = []
        whole, walks = _Edges(), _Edges()
        at = 0
        for index, (chunk, rows) in enumerate(zip(chunks, outputs, strict=True)):
            if not len(rows):
                continue
            task = chunk.request.task
            if isinstance(task, ChoiceTask):
                first, last = scored_nodes(chunk)
                tree = chunk.request.tree or task.tree
                # A walk is renormalised over the edges; only the end of a choice, which has no token of its own,
                # needs to know how much the rest of the vocabulary weighs.
                edges = walks if task.masked and tree.stop_choice(first) < 0 else whole
                low, high = tree.first_edges[first], tree.first_edges[last]
                edges.rows.append(tree.edge_rows[low:high] - first + at)
                edges.tokens.append(tree.edge_tokens[low:high])
                edges.counts.append((index, int(high - low)))
            else:
                texts.append(index)
                text_rows.append(at)
            at += len(rows)
        scores: list[Tensor] = []
        asked = [edges for edges in (walks, whole) if edges.counts]
        for edges in asked:
            score = self._edge_logits if edges is walks else self._edge_logprobs
            scores.append(score(hidden, *edges.pairs()))
        kernels = self.decoder.kernels
        if texts:
            chosen = self._staging.send(self._filled(np.array(text_rows)))
            logits = self.decoder.logits(hidden[chosen])[: len(texts)]
            draws = [_draw(chunks[index].request) for index in texts]
            if kernels is not None:
                scores.append(kernels.sample(logits, self._staging.send(pack(draws))))
        fetched = fetch(scores)

        @torch.inference_mode()
        def finish() -> list[Result]:
            results: list[Result] = [None] * len(chunks)
            found = fetched()
            for edges, values in zip(asked, found, strict=False):
                edges.hand_out(values, results)
            if texts:
                tokens = sample(logits.float(), draws) if kernels is None else found[-1].tolist()
                for index, token in zip(texts, tokens, strict=True):
                    results[index] = token
            return results

        return finish

    def _batch(
        self, chunks: Sequence[Chunk], starts: Ids, out_rows: Ids, size: int | None
    ) -> Batch:
        """size: rows that the step is filled up to with rows of token 0 at position 0, in the spare slot."""
        tokens: list[Ids] = []
        positions: list[Ids] = []
        slots: list[Ids] = []
        parts: list[Part] = []
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
            for low in range(start, end, PART_ROWS):
                high = min(low + PART_ROWS, end)
                at = int(first) + low - start
                parts.append(Part(at, low, request.slots[:high], length, request.tree))
        num_rows = max(int(starts[-1]), self._min_rows)
        if size is not None:
            filling = np.zeros(size - int(starts[-1]), dtype=np.int64)
            out_rows = np.concatenate([out_rows, np.zeros(size - len(out_rows), dtype=np.int64)])
            num_rows = size
            if len(filling):
                tokens.append(filling)
                positions.append(filling)
                slots.append(filling + self.num_slots)
                parts.append(Part(int(starts[-1]), 0, slots[-1], len(filling)))

        def tensor(arrays: list[Ids]) -> Tensor:
            return self._staging.put(self._filled(np.concatenate(arrays)))

        attention, windowed = self._attention.plan(parts, num_rows, self._staging.put)
        batch = Batch(
            token_ids=tensor(tokens),
            positions=tensor(positions),
            slots=tensor(slots),
            attention=attention,
            out_rows=tensor([out_rows]),
            windowed=windowed,
        )
        self._staging.flush()
        return batch

    def _filled(self, rows: Ids) -> Ids:
        """Repeated up to the fewest rows that a product may have; what they bring is the same and not used."""
        return np.resize(rows, self._min_rows) if 0 < len(rows) < self._min_rows else rows

    def _edge_logits(self, hidden: Tensor, rows: Ids, tokens: Ids) -> Tensor:
        """log p(token | row) for pairs of a row of `hidden` and a token, up to a constant for each row."""
        send = self._staging.send
        logits = self.decoder.picked_logits(hidden, send(rows), send(tokens))
        return self._edge_logprobs(hidden, rows, tokens) if logits is None else logits

    def _edge_logprobs(self, hidden: Tensor, rows: Ids, tokens: Ids) -> Tensor:
        """log p(token | row) for pairs of a row of `hidden` and a token, with the whole vocabulary as normaliser.

        The vocabulary is taken block by block: the logits of a block stay in the processor's cache, and the
        full matrix of them never exists.
        """
        send = self._staging.send
        wanted, rows = np.unique(rows, return_inverse=True)
        if len(wanted) < len(hidden):  # not those of texts and walks
            hidden = hidden[send(self._filled(wanted))]
        if self.decoder.kernels is not None:
            logprobs = self.decoder.picked_logprobs(hidden, send(rows), send(tokens))
            if logprobs is not None:
                return logprobs
        count = len(hidden)
        order = np.argsort(tokens, kind="stable")
        pair_rows, pair_tokens = send(rows[order]), send(tokens[order])
        ordered = tokens[order]
        picked = hidden.new_empty(len(rows), dtype=torch.float32)
        top = hidden.new_full((count, 1), float("-inf"), dtype=torch.float32)
        total = hidden.new_zeros((count, 1), dtype=torch.float32)
        wide = hidden.new_empty(0, dtype=torch.float32)
        for first, logits in self.decoder.logit_blocks(hidden):
            if wide.shape != logits.shape:
                wide = torch.empty_like(logits, dtype=torch.float32)
            new_top = torch.maximum(top, wide.copy_(logits).amax(dim=1, keepdim=True))
            total *= torch.exp(top - new_top)
            wide.sub_(new_top)
            if self._min_rows:
                wide.exp_()
            else:
                # A fifth of the time on CPU; but where a thread's share ends, bits depend on the place.
                wide.mul_(_LOG2_E).exp2_()
            total += wide.sum(dim=1, keepdim=True)
            top = new_top
            low, high = np.searchsorted(ordered, (first, first + logits.shape[1]))
            picked[low:high] = logits[pair_rows[low:high], pair_tokens[low:high] - first].float()
        logprobs = picked - (top + total.log())[pair_rows, 0]
        return torch.empty_like(logprobs).index_copy_(0, send(order), logprobs)


def scored_rows(chunk: Chunk) -> tuple[int, int]:
    """The rows of a request within a chunk whose outputs are asked for."""
    return max(chunk.start, min(len(chunk.request.tokens) - 1, chunk.end)), chunk.end


def scored_nodes(chunk: Chunk) -> tuple[int, int]:
    """The inner nodes that those rows stand for: of the request's tree or, without one, of its choices."""
    request = chunk.request
    first, last = scored_rows(chunk)
    if request.tree is None:
        return request.walk_node, request.walk_node + last - first
    return first - len(request.tokens) + 1, last - len(request.tokens) + 1


def _draw(request: Request) -> Draw:
    assert isinstance(request.task, TextTask)
    return Draw(request.task.params, request.seed, len(request.task.token_ids))
