"""One request: what is asked, how far its rows are computed, and which slots hold them.

There is no phase: a request has rows (its tokens, then the inner nodes of its choice tree) and a number of
rows already computed. It knows nothing of other requests.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from engine.choice import ChoiceTree, Floats
from engine.kv_cache import Node
from engine.outputs import RequestMetrics
from engine.params import ChoiceParams
from engine.text import TextTask

# Masked scoring goes on with all inner nodes below the one that it reached where they are so few, and so few for all
# running requests together: a pass with their rows takes less time than the passes that it saves.
_LOOK_AHEAD = 10
_LOOK_AHEAD_TOGETHER = 96


class Status(Enum):
    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True)
class ChoiceTask:
    """The choices as texts, and their trie."""

    texts: tuple[str, ...]
    tree: ChoiceTree
    params: ChoiceParams

    @property
    def masked(self) -> bool:
        return self.params.scoring == "masked"


@dataclass(eq=False)
class Request:
    """Rows 0..len(tokens)-1 are the tokens; the rows after them are the tree's inner nodes 1, 2, ...

    tree: what is scored at once, and tree_choices: which of the task's choices are its choices. None for texts, and
    while masked scoring draws one token. slots holds the slot of each row; rows below `num_committed` are in the prefix
    tree, at `node`.
    """

    request_id: str
    tokens: list[int]
    task: TextTask | ChoiceTask
    seed: int
    client: str = ""  # whose it is: clients share the engine equally
    cache_salt: str = ""  # requests with different ones share no rows
    pin: bool = False  # whether its tokens stay in the cache when it ends
    priority: int = 0
    deadline: float | None = None  # on the clock of time.monotonic
    arrival: int = 0
    status: Status = Status.NEW
    num_computed: int = 0
    num_committed: int = 0
    node: Node | None = None
    slots: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    overtaken: int = 0  # times another was admitted ahead of it
    stalled: bool = False  # whether it found no slots in the last step
    long: bool = False  # whether the scheduler holds its rows back for short requests
    charged: int = 0  # rows that its client was charged for
    most_computed: int = 0  # num_computed at its highest, before a preemption

    # what scoring has found so far
    edge_logprobs: Floats | None = None
    walk_node: int = 0  # masked scoring token by token: the inner node reached
    walk_logprob: float = 0.0

    # times are of time.monotonic, in seconds
    arrived_at: float = field(default_factory=time.monotonic)
    started_at: float | None = None
    prefilled_at: float | None = None
    first_token_at: float | None = None
    cached_tokens: int = 0
    scored_rows: int = 0
    preemptions: int = 0

    def __post_init__(self) -> None:
        self.prompt_len = len(self.tokens)
        self.tree: ChoiceTree | None = None
        self.tree_choices: Sequence[int] = ()
        if isinstance(self.task, ChoiceTask) and not self.task.masked:
            self._score(self.task.tree, range(self.task.tree.num_choices))

    def walk_to(self, node: int, num_running: int) -> None:
        """Masked scoring goes on from an inner node of the choices, which the tokens lead to."""
        assert isinstance(self.task, ChoiceTask)
        self.walk_node = node
        most = min(_LOOK_AHEAD, _LOOK_AHEAD_TOGETHER // num_running)
        if 1 < self.task.tree.num_below(node) <= most:
            below, choices = self.task.tree.below(node)
            # The end of a choice is scored in another way, and how a node is must not depend on who else is running.
            if not below.has_stops:
                self._score(below, choices)

    def _score(self, tree: ChoiceTree, choices: Sequence[int]) -> None:
        self.tree, self.tree_choices = tree, choices
        self.edge_logprobs = np.zeros(len(tree.edge_tokens))

    @property
    def num_rows(self) -> int:
        """Rows known so far; a text grows by one with each token."""
        return len(self.tokens) + (self.tree.num_inner - 1 if self.tree else 0)

    @property
    def num_left(self) -> int:
        return self.num_rows - self.num_computed

    @property
    def max_rows(self) -> int:
        """Rows it may come to have."""
        task = self.task
        if isinstance(task, TextTask):
            return self.prompt_len + task.max_tokens - 1
        nodes = task.tree.num_inner
        if task.masked:
            nodes = min(nodes, task.tree.height + _LOOK_AHEAD)
        return self.prompt_len + nodes - 1

    @property
    def order(self) -> tuple[int, int]:
        """Smaller goes first."""
        return (self.priority, self.arrival)

    def add_slots(self, slots: list[int]) -> None:
        """Note the slots of the next rows."""
        end = self.num_computed + len(slots)
        if end > len(self.slots):
            grown = np.empty(max(end, self.num_rows, 2 * len(self.slots)), dtype=np.int64)
            grown[: self.num_computed] = self.slots[: self.num_computed]
            self.slots = grown
        self.slots[self.num_computed : end] = slots
        self.num_computed = end

    def metrics(self) -> RequestMetrics:
        now = time.monotonic()
        started = self.started_at or now
        prefilled = self.prefilled_at or now
        return RequestMetrics(
            queue_s=started - self.arrived_at,
            prefill_s=prefilled - started,
            decode_s=now - prefilled,
            ttft_s=(self.first_token_at or now) - self.arrived_at,
            prompt_tokens=self.prompt_len,
            cached_tokens=self.cached_tokens,
            scored_rows=self.scored_rows,
            preemptions=self.preemptions,
        )
