"""How an answer is drawn: plain data that callers send with a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SamplingParams:
    """How `generate` draws a text. Temperature 0 takes the likeliest token.

    top_k 0 and top_p 1 mean no limit; `stop`, one string or several, ends the text and is not part of it;
    `ignore_eos` goes on past the model's own end of text. The draws depend only on the seed and
    the position, not on the neighbours in the batch.
    """

    max_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: Sequence[str] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _check_draw(self.temperature, self.top_p, self.min_p)
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be at least 1.")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (no limit) or more.")
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if "" in stop:
            raise ValueError("A stop string is empty; leave it out.")
        object.__setattr__(self, "stop", stop)


@dataclass(frozen=True)
class ChoiceParams:
    """How `choose` draws one of the choices. Temperature 0 takes the likeliest.

    scoring "likelihood": exact probability of every choice, all in one pass.
    scoring "masked": one path, renormalised at every token as grammar-constrained decoders do;
    it takes fewer rows and gives no probabilities of the other choices.
    """

    scoring: Literal["likelihood", "masked"] = "likelihood"
    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_draw(self.temperature, self.top_p, self.min_p)
        if self.scoring not in ("likelihood", "masked"):
            raise ValueError(f"scoring is {self.scoring!r}; use likelihood or masked.")


def _check_draw(temperature: float, top_p: float, min_p: float) -> None:
    if not 0.0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}; it must be 0 or a finite positive number.")
    if not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p is {top_p}; it must be above 0 and at most 1.")
    if not 0.0 <= min_p <= 1.0:
        raise ValueError(f"min_p is {min_p}; it must be from 0 to 1.")
