"""The one interface of attention: what requests bring to a step, and the back ends that plan and compute it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.attention import Mask, Span, plan_attention
from engine.choice import ChoiceTree
from engine.errors import ModelLoadError
from engine.fixed_order import plan_in_order
from engine.kv_pool import KVPool
from engine.model_config import ModelConfig
from engine.staging import Put

Ids = npt.NDArray[np.int64]
BackendName = Literal["torch", "triton"]

PART_ROWS = 256  # rows of one part at most: earlier ones need not see later keys
_CAUSAL = np.tri(PART_ROWS, dtype=np.bool_)


@dataclass(frozen=True)
class Part:
    """Up to PART_ROWS rows of one request: batch rows first.., which are its rows start..len(slots)-1.

    slots: of all its rows up to there, whose keys these rows may see: a token sees what is before it and itself, an
    inner node of the tree its prompt and its ancestors. length: tokens; the rows after them are inner nodes 1, 2, ...
    """

    first: int
    start: int
    slots: Ids
    length: int
    tree: ChoiceTree | None = None

    @property
    def end(self) -> int:
        return len(self.slots)

    def mask(self) -> Mask:
        """[rows, keys] who sees what."""
        start, end, length = self.start, self.end, self.length
        mask = np.ones((end - start, end), dtype=np.bool_)
        mask[:, start:] = _CAUSAL[: end - start, : end - start]
        if end > length:
            assert self.tree is not None
            first = max(start, length)
            above = self.tree.ancestors()
            mask[first - start :, length:] = above[
                first - length + 1 : end - length + 1, 1 : end - length + 1
            ]
        return mask

    def positions(self) -> Ids:
        """Where rows 0..end-1 of the request are in its text: [end]. Inner nodes of one depth are beside each other."""
        if self.end <= self.length:
            return np.arange(self.end)
        assert self.tree is not None
        depths = self.tree.depths[1 : self.end - self.length + 1]
        return np.concatenate([np.arange(self.length), depths + (self.length - 1)])

    def span(self) -> Span:
        return Span(self.first, self.slots, self.mask())

    def cut(self, span: Span, window: int) -> Span:
        """The span for layers that see `window` tokens, the row's own among them; itself if it is no longer."""
        positions = self.positions()
        rows = positions[self.start :]
        if rows.max() < window:
            return span
        mask = span.mask & (positions > rows[:, np.newaxis] - window)
        first = int(mask.any(axis=0).argmax())
        return Span(span.first, span.slots[first:], mask[:, first:])


class Plan(Protocol):
    """Who sees what in one step, as the back end that made it wants it."""

    def attend(
        self, queries: Tensor, pool: KVPool, layer: int, scale: float, softcap: float | None
    ) -> Tensor:
        """Attention of one layer: [N, heads, head_dim] like the queries. softcap: c of tanh(score / c) * c."""
        ...


class AttentionBackend(Protocol):
    def plan(self, parts: Sequence[Part], num_rows: int, put: Put) -> tuple[Plan, Plan | None]:
        """For full layers, and for windowed ones if the model has such. Rows beyond those of the parts, up to
        `num_rows`, are copies of the first ones in order. put: brings arrays to the device, see `engine.staging`."""
        ...


class TorchAttention:
    """Plain torch, on any device."""

    def __init__(
        self, config: ModelConfig, device: torch.device, dtype: torch.dtype, deterministic: bool
    ) -> None:
        """Raises ModelLoadError where `deterministic` is not supported."""
        self._window = config.sliding_window
        self._kv_heads = config.num_kv_heads
        self._device, self._dtype = device, dtype
        self._deterministic = deterministic
        if deterministic and (self._window is not None or config.attention_softcap is not None):
            raise ModelLoadError(
                "deterministic is not supported for sliding windows and soft caps by attention_backend torch "
                f"({config.architecture}); use another model or set deterministic to False."
            )

    def plan(self, parts: Sequence[Part], num_rows: int, put: Put) -> tuple[Plan, Plan | None]:
        device, dtype = self._device, self._dtype
        spans = [part.span() for part in parts]
        if self._deterministic:
            return plan_in_order(spans, num_rows, self._kv_heads, device, dtype), None
        plan = plan_attention(spans, self._kv_heads, device, dtype)
        if self._window is None:
            return plan, None
        cut = [part.cut(span, self._window) for part, span in zip(parts, spans, strict=True)]
        if all(span is whole for span, whole in zip(cut, spans, strict=True)):
            return plan, plan
        return plan, plan_attention(cut, self._kv_heads, device, dtype)


def make_attention(
    name: BackendName | None,
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    deterministic: bool = False,
) -> AttentionBackend:
    """None: triton on CUDA, torch elsewhere. Raises ModelLoadError where the back end cannot run."""
    if name is None:
        name = "triton" if device.type == "cuda" else "torch"
    if name == "torch":
        return TorchAttention(config, device, dtype, deterministic)
    try:
        from engine.kernels.attention import TritonAttention
    except ModuleNotFoundError as error:
        raise ModelLoadError(
            "attention_backend triton needs the package triton; install arena[gpu] or use torch."
        ) from error
    return TritonAttention(config, device, dtype, deterministic)
