"""Choosing among given texts: the token trie of the choices, what its scores say, and the draw.

Pure values: it knows nothing of schedules, caches and models. p(choice) is the probability that a reply begins
with it, the longest match counting when one choice is a prefix of another. So only inner nodes of the trie
need a row, and no terminator is scored.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.params import ChoiceParams

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

_NO_PROBABILITY = (
    1e-30  # stands for 0 where rounding leaves nothing, so that logarithms stay finite
)


class ChoiceTree:
    """A trie over token ids. Inner nodes are numbered breadth first; number 0 is the root, the prompt's end.

    tokens, parents, depths: one per inner node (the root has token -1, parent -1 and depth 0).
    edge_rows, edge_tokens: the inner node an edge leaves, and its token; sorted by edge_rows.
    edge_nodes: the inner node an edge leads to, or -1 for a leaf.
    choice_edges: per choice, its edges from the root on. stops: per choice, the inner node where it ends if it
    is a prefix of another choice, else -1.
    """

    def __init__(self, choices: Sequence[tuple[int, ...]]) -> None:
        # One pass per depth: what a node holds is known when its row is numbered.
        tokens, parents, depths = [-1], [-1], [0]
        edge_rows: list[int] = []
        edge_tokens: list[int] = []
        edge_nodes: list[int] = []
        self.choice_edges: list[list[int]] = [[] for _ in choices]
        self.stops = [-1] * len(choices)
        level = {0: list(range(len(choices)))}
        depth = 0
        while level:
            below: dict[int, list[int]] = {}
            for node, members in level.items():
                by_token: dict[int, list[int]] = {}
                for member in members:
                    if len(choices[member]) == depth:
                        self.stops[member] = node
                    else:
                        by_token.setdefault(choices[member][depth], []).append(member)
                for token, group in by_token.items():
                    child = -1
                    if len(group) > 1 or len(choices[group[0]]) > depth + 1:
                        child = len(tokens)
                        tokens.append(token)
                        parents.append(node)
                        depths.append(depth + 1)
                        below[child] = group
                    for member in group:
                        self.choice_edges[member].append(len(edge_rows))
                    edge_rows.append(node)
                    edge_tokens.append(token)
                    edge_nodes.append(child)
            level = below
            depth += 1
        self.tokens: Ids = np.array(tokens, dtype=np.int64)
        self.parents: Ids = np.array(parents, dtype=np.int64)
        self.depths: Ids = np.array(depths, dtype=np.int64)
        self.edge_rows: Ids = np.array(edge_rows, dtype=np.int64)
        self.edge_tokens: Ids = np.array(edge_tokens, dtype=np.int64)
        self.edge_nodes = edge_nodes
        self.first_edges: Ids = np.searchsorted(self.edge_rows, np.arange(len(tokens) + 1))

    @property
    def num_inner(self) -> int:
        return len(self.tokens)

    @property
    def height(self) -> int:
        """Tokens of the longest choice."""
        return max(len(edges) for edges in self.choice_edges)

    def ancestors(self) -> npt.NDArray[np.bool_]:
        """[inner, inner] mask: row i may see column j when j is i itself or above it (the root included)."""
        mask = np.eye(self.num_inner, dtype=np.bool_)
        for node in range(1, self.num_inner):
            mask[node] |= mask[self.parents[node]]
        return mask

    def path(self, choice: int) -> list[int]:
        """The inner nodes below the root that a choice passes or ends at."""
        nodes = [self.edge_nodes[edge] for edge in self.choice_edges[choice]]
        return [node for node in nodes if node >= 0]

    def edges_of(self, node: int) -> range:
        return range(int(self.first_edges[node]), int(self.first_edges[node + 1]))

    def stop_choice(self, node: int) -> int:
        """The choice that ends at an inner node, or -1."""
        return self.stops.index(node) if node in self.stops else -1

    def leaf_choice(self, edge: int) -> int:
        """The choice whose last edge is `edge`, which leads to a leaf."""
        return next(i for i, edges in enumerate(self.choice_edges) if edges[-1] == edge)

    def log_probabilities(self, edge_logprobs: Floats) -> Floats:
        """Logarithm of the probability of each choice, from those of the edges' tokens given their rows."""
        logs = edge_logprobs.tolist()
        result = [sum(logs[edge] for edge in edges) for edges in self.choice_edges]
        for choice, node in enumerate(self.stops):
            if node >= 0:
                edges = self.edges_of(node)
                result[choice] += log_stop(edge_logprobs[edges.start : edges.stop])
        return np.array(result)


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
    order = sorted(range(len(keys)), key=lambda i: (-logs[i], keys[i]))
    if params.temperature == 0.0 or len(order) == 1:
        return order[0]
    scaled = [(float(logs[i]) - float(logs[order[0]])) / params.temperature for i in order]
    if params.top_p < 1.0 or params.min_p > 0.0:
        weights = [math.exp(value) for value in scaled]
        kept = sum(1 for weight in weights if weight >= params.min_p)
        limit = params.top_p * sum(weights[:kept])
        mass = 0.0
        for position in range(kept):
            mass += weights[position]
            if mass >= limit:
                kept = position + 1
                break
        order, scaled = order[:kept], scaled[:kept]
    noisy = [value + gumbel(seed, keys[i]) for value, i in zip(scaled, order, strict=True)]
    return order[max(range(len(order)), key=noisy.__getitem__)]


def gumbel(seed: int, key: str) -> float:
    """A standard Gumbel variate that is a function of its arguments alone."""
    return -math.log(-math.log(uniform(seed, key)))


def uniform(seed: int, key: str) -> float:
    """A number in (0, 1) that is a function of its arguments alone."""
    digest = hashlib.blake2b(f"{seed}\0{key}".encode(), digest_size=8).digest()
    return ((int.from_bytes(digest, "big") >> 11) + 0.5) / (1 << 53)
