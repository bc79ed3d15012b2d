"""Choosing among given texts: the token trie of the choices, what its scores say, and the draw.

Pure values: it knows nothing of schedules, caches and models. p(choice) is the probability that a reply begins
with it, the longest match counting when one choice is a prefix of another. So only inner nodes of the trie
need a row, and no terminator is scored.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.params import ChoiceParams

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

_END = -1  # stands for a token in a branch of the trie that is being built
# Stands for 0 where rounding leaves nothing, so that logarithms stay finite.
_NO_PROBABILITY = 1e-30


class ChoiceTree:
    """A trie over token ids. Inner nodes are numbered breadth first; number 0 is the root, the prompt's end.

    Neither the numbers nor what is computed from them depend on the order of the choices, which are at least
    one, no two of them alike; one alone may not be empty.

    tokens, parents, depths: one per inner node (the root has token -1, parent -1 and depth 0).
    edge_rows, edge_tokens: the inner node an edge leaves, and its token; sorted by edge_rows.
    edge_nodes: the inner node an edge leads to, or -1 for a leaf.
    first_edges: where the edges of each inner node begin among all; one more for the end.
    height: tokens of the longest choice.
    """

    def __init__(self, choices: Sequence[tuple[int, ...]]) -> None:
        self._choices = choices
        self.height = max(map(len, choices))
        root: dict[int, Any] = {}  # by token: what is below it; by _END: the choice that ends here
        for choice in sorted(range(len(choices)), key=choices.__getitem__):
            branch = root
            for token in choices[choice]:
                below = branch.get(token)
                if below is None:
                    below = branch[token] = {}
                branch = below
            branch[_END] = choice
        tokens, parents, depths = [-1], [-1], [0]
        edge_rows: list[int] = []
        edge_tokens: list[int] = []
        first_edges = [0]
        self.edge_nodes: list[int] = []
        self._leaves: list[int] = []  # of each edge, the choice that it completes, or -1
        self._stops: dict[int, int] = {}  # by inner node, the choice that ends there
        self._last = [0] * len(
            choices
        )  # of each choice, the last inner node that it passes or ends at
        branches = [root]
        for node, branch in enumerate(branches):
            for token, below in branch.items():
                if token == _END:
                    self._stops[node] = below
                    self._last[below] = node
                    continue
                edge_rows.append(node)
                edge_tokens.append(token)
                leaf = below.get(_END, -1) if len(below) == 1 else -1
                self._leaves.append(leaf)
                if leaf >= 0:
                    self.edge_nodes.append(-1)
                    self._last[leaf] = node
                else:
                    self.edge_nodes.append(len(tokens))
                    tokens.append(token)
                    parents.append(node)
                    depths.append(depths[node] + 1)
                    branches.append(below)
            first_edges.append(len(edge_rows))
        self.tokens: Ids = np.array(tokens, dtype=np.int64)
        self.parents: Ids = np.array(parents, dtype=np.int64)
        self.depths: Ids = np.array(depths, dtype=np.int64)
        self.edge_rows: Ids = np.array(edge_rows, dtype=np.int64)
        self.edge_tokens: Ids = np.array(edge_tokens, dtype=np.int64)
        self.first_edges: Ids = np.array(first_edges, dtype=np.int64)

    @property
    def num_inner(self) -> int:
        return len(self.tokens)

    @property
    def num_choices(self) -> int:
        return len(self._last)

    def ancestors(self) -> npt.NDArray[np.bool_]:
        """[inner, inner] mask: row i may see column j when j is i itself or above it (the root included)."""
        mask = np.eye(self.num_inner, dtype=np.bool_)
        levels = np.searchsorted(self.depths, np.arange(1, self.height + 1)).tolist()
        for first, last in pairwise(levels):
            mask[first:last] |= mask[self.parents[first:last]]
        return mask

    @cached_property
    def nesting(self) -> tuple[Ids, Ids]:
        """enters and leaves, [inner] each: i is j or below it when enters[j] <= enters[i] < leaves[j].

        They number the nodes depth first, from 0 at the root.
        """
        sizes = np.ones(self.num_inner, dtype=np.int64)
        levels = np.searchsorted(self.depths, np.arange(1, self.height + 1)).tolist()
        for first, last in reversed(list(pairwise(levels))):
            np.add.at(sizes, self.parents[first:last], sizes[first:last])
        enters = np.zeros(self.num_inner, dtype=np.int64)
        for first, last in pairwise(levels):
            parents, before = self.parents[first:last], np.cumsum(sizes[first:last])
            before -= sizes[first:last]
            # Siblings are beside each other: those before a node are counted from the first of them.
            elder = before[np.searchsorted(parents, parents)]
            enters[first:last] = enters[parents] + 1 + before - elder
        return enters, enters + sizes

    def below(self, node: int) -> tuple["ChoiceTree", list[int]]:
        """The tree of what may follow an inner node, one choice of which may be empty; and which choices they are."""
        enters, leaves = self.nesting
        at = enters[self._last]
        chosen = np.flatnonzero((enters[node] <= at) & (at < leaves[node])).tolist()
        depth = int(self.depths[node])
        return ChoiceTree([self._choices[choice][depth:] for choice in chosen]), chosen

    def num_below(self, node: int) -> int:
        """Inner nodes of the tree below an inner node, itself among them."""
        enters, leaves = self.nesting
        return int(leaves[node] - enters[node])

    def path(self, choice: int) -> list[int]:
        """The inner nodes below the root that a choice passes or ends at, from the top down."""
        nodes: list[int] = []
        node = self._last[choice]
        while node:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def edges_of(self, node: int) -> range:
        return range(int(self.first_edges[node]), int(self.first_edges[node + 1]))

    def stop_choice(self, node: int) -> int:
        """The choice that ends at an inner node, or -1."""
        return self._stops.get(node, -1)

    def leaf_choice(self, edge: int) -> int:
        """The choice whose last edge is `edge`, or -1 if that leads to an inner node."""
        return self._leaves[edge]

    @property
    def has_stops(self) -> bool:
        """Whether some choice is the prefix of another."""
        return bool(self._stops)

    def log_probabilities(self, edge_logprobs: Floats) -> Floats:
        """Logarithm of the probability of each choice, from those of the edges' tokens given their rows."""
        reached = [0.0] * self.num_inner
        result = [0.0] * self.num_choices
        edges = zip(
            self.edge_rows.tolist(),
            self.edge_nodes,
            self._leaves,
            edge_logprobs.tolist(),
            strict=True,
        )
        for row, node, leaf, logprob in edges:  # breadth first: what is above comes before
            if node >= 0:
                reached[node] = reached[row] + logprob
            else:
                result[leaf] = reached[row] + logprob
        for node, choice in self._stops.items():
            below = self.edges_of(node)
            result[choice] = reached[node] + log_stop(edge_logprobs[below.start : below.stop])
        return np.array(result)


def up_to_last_draws(choices: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Each choice without the tokens that have no alternative, where those before them are given; one at least."""
    order = sorted(range(len(choices)), key=choices.__getitem__)
    alike = [0] * (len(order) + 1)  # tokens in common with the choice before
    for at, (one, other) in enumerate(pairwise(choices[i] for i in order), 1):
        differ = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        alike[at] = next(differ, min(len(one), len(other)))
    kept = dict(zip(order, (max(both) + 1 for both in pairwise(alike)), strict=True))
    return [choice[: kept[i]] for i, choice in enumerate(choices)]


def log_stop(child_logprobs: Floats) -> float:
    """Logarithm of the probability that a reply goes on with none of an inner node's children."""
    return math.log(max(1.0 - float(np.exp(child_logprobs).sum()), _NO_PROBABILITY))


def normalise(logs: Floats) -> tuple[Floats, float, float]:
    """Logarithms of probabilities that sum to 1; the sum before; the entropy after, in nats."""
    top = float(logs.max())
    log_mass = top + math.log(float(np.exp(logs - top).sum()))
    logprobs = logs - log_mass
    entropy = -float((np.exp(logprobs) * logprobs).sum())
    return logprobs, math.exp(log_mass), max(entropy, 0.0)


def draw(logs: Floats, keys: Sequence[str], params: ChoiceParams, seed: int) -> int:
    """Index of one option, drawn from softmax(logs / temperature) cut by min_p and top_p.

    The noise of an option depends on the seed and its key alone (Gumbel's trick), so neither the order of
    the options nor anything else in the batch matters. Ties go to the smaller key.
    """
    values: list[float] = logs.tolist()
    top = max(values)
    if params.temperature == 0.0 or len(values) == 1:
        return min((i for i, v in enumerate(values) if v == top), key=keys.__getitem__)
    values = [(value - top) / params.temperature for value in values]
    options: Sequence[int] = range(len(values))
    if params.top_p < 1.0 or params.min_p > 0.0:
        options = _cut(values, keys, params)
    noise = gumbel_noise(seed, [keys[i] for i in options])
    noisy = [values[i] + n for i, n in zip(options, noise, strict=True)]
    return options[max(range(len(options)), key=noisy.__getitem__)]


def _cut(values: list[float], keys: Sequence[str], params: ChoiceParams) -> list[int]:
    """The options that min_p, then top_p leave, the likeliest first; `values` are logarithms whose top is 0."""
    order = sorted(range(len(values)), key=lambda i: (-values[i], keys[i]))
    weights = [weight for i in order if (weight := math.exp(values[i])) >= params.min_p]
    limit = params.top_p * sum(weights)
    mass = 0.0
    for kept, weight in enumerate(weights, 1):
        mass += weight
        if mass >= limit:
            return order[:kept]
    return order[: len(weights)]


def gumbel_noise(seed: int, keys: Sequence[str]) -> list[float]:
    """For each key a standard Gumbel variate that is a function of the seed and the key alone."""
    return [-math.log(-math.log(number)) for number in uniforms(seed, keys)]


def uniform(seed: int, key: str) -> float:
    """A number in (0, 1) that is a function of its arguments alone."""
    return uniforms(seed, (key,))[0]


def uniforms(seed: int, keys: Sequence[str]) -> list[float]:
    """`uniform` of many keys."""
    start = hashlib.blake2b(f"{seed}\0".encode(), digest_size=8)
    numbers = []
    for key in keys:
        state = start.copy()
        state.update(key.encode())
        numbers.append(((int.from_bytes(state.digest(), "big") >> 11) + 0.5) * 2.0**-53)
    return numbers
