"""The bundled model `tiny` as it learns: what its weights start from, its attention, and its losses."""

from __future__ import annotations

import re
from typing import Any

import torch
from tiny_data import Batch
from tokenizers import Tokenizer
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
)

MAX_LENGTH = 2048  # tokens; the longest prompt an agent may send
BRANCHES_AT_ONCE = 8
EVEN_SHARE = 0.5  # of the loss after a move's first token is spread evenly over the pieces, the rest by their share
# Sizes of what `prepare_to_copy` adds.
ALIKE, COPIED, COMMON = 0.5, 0.4, 0.3
BACK, WRITTEN, FOUND = 1.2, 0.5, 2.0
PART, WHOLE = 0.2, 0.5  # standard deviations of parts of embeddings and of their sums
OUTPUT = 0.15  # scale of what comes out, for first logits of about 1
SQUARE = re.compile(r"( ?)([a-i])(10|[1-9])")
FACTS = re.compile(r" (x[a-z])?([+#=-])?(\?[A-Z])?")


def new_model(vocab_size: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=5,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            bos_token_id=None,
            eos_token_id=0,
            pad_token_id=None,
            attn_implementation="products",
        )
    )


@torch.no_grad()
def prepare_to_copy(model: LlamaForCausalLM) -> None:
    """Start near what copying a move from a list takes, which random weights need many hundred steps to find.

    Half of the heads of the first layer look one token back and write down what stands there, a quarter two tokens.
    Half of those of the second look for a token before which the present one stood, and copy it (an induction head,
    Olsson et al. 2022). All others look for tokens like their own and copy them (mimetic initialization, Trockman &
    Kolter 2023).
    """
    config = model.config
    width, size, heads = config.hidden_size, config.head_dim, config.num_attention_heads
    group = heads // config.num_key_value_heads
    pairs = (
        size // 2
    )  # of dimensions i and i + pairs; RoPE turns them by theta ** -(i / pairs) a place
    turns = config.rope_parameters["rope_theta"] ** -(torch.arange(pairs) / pairs)
    slow = (turns < 0.01).repeat(2).float()[:, None]  # hardly turned within a list
    common = torch.nn.functional.normalize(torch.randn(width), dim=0)
    # What all tokens have in common, for heads that look at places alone; the same logit for all, so no bias.
    model.model.embed_tokens.weight += COMMON * width**0.5 * common
    model.model.norm.weight.fill_(OUTPUT)
    for layer in model.model.layers:
        attention = layer.self_attn
        keys, values = (
            torch.nn.init.orthogonal_(torch.empty(width, width))[: heads // group * size]
            for _ in range(2)
        )
        attention.k_proj.weight += ALIKE * keys
        attention.v_proj.weight += values
        for head in range(heads):
            own, shared = (slice(h * size, (h + 1) * size) for h in (head, head // group))
            attention.q_proj.weight[own] += ALIKE * keys[shared]
            attention.o_proj.weight[:, own] += COPIED * values[shared].T
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    fast = (turns > 0.15).float()
    here = torch.cat([fast, torch.zeros(pairs)])
    bases = torch.nn.init.orthogonal_(torch.empty(width, width))
    for head in range(heads * 3 // 4):
        distance = 1 if head < heads // 2 else 2
        back = torch.cat([fast * (turns * distance).cos(), -fast * (turns * distance).sin()])
        own, shared = (slice(h * size, (h + 1) * size) for h in (head, head // group))
        read, write = bases[shared], bases[width // 2 :][shared]
        first.q_proj.weight[own] = BACK * torch.outer(back, common)
        first.k_proj.weight[shared] = BACK * torch.outer(here, common)
        first.v_proj.weight[shared] = read
        first.o_proj.weight[:, own] = WRITTEN * write.T
        if distance == 1:
            second.q_proj.weight[own] = FOUND * slow * read
            second.k_proj.weight[shared] = FOUND * slow * write


def products(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    scaling: float = 1.0,
    bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as two products and a softmax. query [B, heads, T, d]; key, value [B, kv heads, K, d]; bias [B, T, K]
    is 0 where a token may look and -inf elsewhere, None for causal.

    torch's fused attention took 60% of a step on CPU in bfloat16, this takes 20%.
    """
    b, heads, t, d = query.shape
    kv, n = key.shape[1:3]
    if bias is None:
        hidden = torch.full((t, n), float("-inf"), dtype=torch.bfloat16, device=query.device)
        bias = hidden.triu(n - t + 1)[None]
    with torch.autocast(query.device.type, enabled=False):
        q = (query.bfloat16() * scaling).reshape(b * kv, heads // kv * t, d)
        k, v = (x.bfloat16().reshape(b * kv, n, d) for x in (key, value))
        scores = torch.bmm(q, k.transpose(1, 2)).view(b, heads, t, n) + bias[:, None]
        weights = torch.softmax(scores, dim=-1).view(b * kv, -1, n)
        return torch.bmm(weights, v).view(b, heads, t, d).transpose(1, 2), None


AttentionInterface.register("products", products)
AttentionMaskInterface.register("products", lambda *_, **__: None)


class Factored(torch.nn.Module):
    """Embeddings of squares and of what moves do as sums: what is learned of d4 says something of its file, rank and
    diagonals, and of taking a queen something of every move that takes one. They are added up for the export.
    """

    def __init__(self, vocabulary: dict[str, int], width: int) -> None:
        super().__init__()
        names: dict[str, int] = {}
        marks = []
        for word, number in sorted(vocabulary.items(), key=lambda item: item[1]):
            for part in parts_of(word.replace("\u0120", " ")):
                marks.append((number, names.setdefault(part, len(names))))
        has = torch.zeros(max(vocabulary.values()) + 1, len(names))
        has[tuple(torch.tensor(marks).T)] = 1.0
        self.register_buffer("has", has)
        self.parts = torch.nn.Parameter(PART * torch.randn(len(names), width))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.has @ self.parts


def parts_of(word: str) -> list[str]:
    """What a token shares with others of its kind; nothing for a token that is no square and says nothing of a move."""
    if match := SQUARE.fullmatch(word):
        file, rank = ord(match[2]), int(match[3])
        return [
            f"place {match[1]}",
            f"square {match[2]}{rank}",
            f"file {file}",
            f"rank {rank}",
            f"rising {rank - file}",
            f"falling {rank + file}",
        ]
    if match := FACTS.fullmatch(word):
        return [part for part in match.groups() if part]
    return []


class Student(torch.nn.Module):
    """The model as it learns: its embeddings are made of parts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.llama = new_model(tokenizer.get_vocab_size())
        self.parts = Factored(tokenizer.get_vocab(), self.llama.config.hidden_size)
        with torch.no_grad():  # all sums equally large
            rest = (WHOLE**2 - PART**2 * self.parts.has.sum(1)).clamp(min=PART**2).sqrt()
            self.llama.model.embed_tokens.weight.normal_().mul_(rest[:, None])
        prepare_to_copy(self.llama)

    def table(self) -> torch.Tensor:
        """[vocabulary, width] the embeddings, added up."""
        return self.parts(self.llama.model.embed_tokens.weight)

    def hidden(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, width] what comes out for the batch's nodes, and the embeddings.

        The rules are computed once per batch, each trunk once for its branches.
        """
        table = self.table()
        embed = torch.nn.functional.embedding
        model = self.llama.model
        shared = model(inputs_embeds=embed(batch.rules, table), use_cache=True).past_key_values
        cache = DynamicCache()
        for index, layer in enumerate(shared.layers):
            rows = (len(batch.trunks), -1, -1, -1)
            cache.update(layer.keys.expand(rows), layer.values.expand(rows), index)
        trunks = model(
            inputs_embeds=embed(batch.trunks, table), past_key_values=cache, use_cache=True
        )
        # The branches come longest first, so that few at a time need little padding.
        output = []
        for rows in torch.arange(len(batch.ids)).split(BRANCHES_AT_ONCE):
            size = int(batch.sizes[rows].max())
            ids, row = batch.ids[rows, :size], batch.row[rows]
            cache = DynamicCache()
            for index, layer in enumerate(trunks.past_key_values.layers):
                cache.update(layer.keys[row], layer.values[row], index)
            rules = torch.ones(len(row), batch.rules.shape[1], dtype=torch.bool, device=ids.device)
            before = torch.cat([rules, batch.seen[rows]], dim=1)[:, None].expand(-1, size, -1)
            sees = torch.cat([before, batch.visible[rows, :size, :size]], dim=2)
            bias = torch.zeros(sees.shape, dtype=torch.bfloat16, device=sees.device)
            states = model(
                inputs_embeds=embed(ids, table),
                position_ids=batch.positions[rows, :size],
                past_key_values=cache,
                use_cache=True,
                bias=bias.masked_fill(~sees, float("-inf")),
            ).last_hidden_state
            padding = (0, 0, 0, batch.ids.shape[1] - size)
            output.append(torch.nn.functional.pad(states, padding))
        return torch.cat(output).flatten(0, 1)[batch.nodes], table

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """In nats: `first` and `next`, how far the first and the further tokens of moves are from their targets (the
        divergence, zero at best); `illegal`, -log of the share of legal tokens, summed over a move; `mass` the legal
        mass, which is not learned from.
        """
        hidden, table = self.hidden(batch)
        logits = torch.nn.functional.linear(hidden, table).float()
        logprobs = torch.log_softmax(logits, dim=-1)[tuple(batch.entries.T)]
        node = batch.entries[:, 0]
        zeros = torch.zeros(len(batch.nodes), device=logits.device)
        total = zeros.index_add(0, node, batch.share)
        wanted = batch.share / total[node].clamp(min=1e-9)
        apart = torch.where(wanted > 0, wanted * (wanted.clamp(min=1e-9).log() - logprobs), 0.0)
        divergence = zeros.index_add(0, node, apart)
        illegal = -zeros.index_add(0, node, logprobs.exp()).clamp(min=1e-9).log()
        start = batch.depth == 0
        even = 1.0 / ((~start).sum() / start.sum())
        weight = EVEN_SHARE * even + (1 - EVEN_SHARE) * total
        with torch.no_grad():
            mass = zeros.clone()
            for depth in range(int(batch.depth.max()), -1, -1):
                here = batch.depth[node] == depth
                rest = torch.where(batch.child < 0, 1.0, mass[batch.child])
                mass.index_add_(0, node[here], (logprobs.exp() * rest)[here])
        onward = {
            name: (of_node * weight)[~start].sum() / start.sum()
            for name, of_node in (("next", divergence), ("illegal", illegal))
        }
        return {
            "first": divergence[start].mean(),
            "next": onward["next"],
            "illegal": illegal[start].mean() + onward["illegal"],
            "mass": mass[start].mean(),
        }
