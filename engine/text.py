"""Token ids becoming text, one at a time: whole characters only, and stop strings held back until they are sure.

It knows nothing of probabilities and schedules.
"""

from dataclasses import dataclass, field
from typing import Literal

from engine.params import SamplingParams
from engine.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"  # what an incomplete UTF-8 sequence decodes to


@dataclass(eq=False)
class TextTask:
    """A text being generated."""

    params: SamplingParams
    max_tokens: int
    tokenizer: Tokenizer
    token_ids: list[int] = field(default_factory=list)
    text: str = ""  # decoded so far, whole characters
    sent: int = 0  # characters of `text` handed out
    finish_reason: Literal["stop", "length"] | None = None
    _window: int = 0  # token_ids[_window:_read] decode to the text before the next one
    _read: int = 0

    def append(self, token_id: int, is_end: bool) -> str:
        """Take the next token; returns the text that can be handed out, and sets finish_reason at the end."""
        if is_end and not self.params.ignore_eos:
            self.finish_reason = "stop"
            return self._rest()
        self.token_ids.append(token_id)
        is_last = len(self.token_ids) >= self.max_tokens
        known = self.tokenizer.decode(self.token_ids[self._window : self._read], True)
        now = self.tokenizer.decode(self.token_ids[self._window :], True)
        if not now.endswith(_REPLACEMENT) or is_last:
            searched = max(0, len(self.text) - self._longest_stop() + 1)
            self.text += now[len(known) :]
            self._window, self._read = self._read, len(self.token_ids)
            stops = [at for stop in self.params.stop if (at := self.text.find(stop, searched)) >= 0]
            if stops:
                self.text = self.text[: min(stops)]
                self.finish_reason = "stop"
                return self._rest()
        if is_last:
            self.finish_reason = "length"
            return self._rest()
        return self._take(len(self.text) - self._held_back())

    def _longest_stop(self) -> int:
        return max((len(stop) for stop in self.params.stop), default=1)

    def _held_back(self) -> int:
        """Characters at the end that may be the beginning of a stop string."""
        for length in range(min(self._longest_stop() - 1, len(self.text)), 0, -1):
            tail = self.text[-length:]
            if any(stop.startswith(tail) for stop in self.params.stop):
                return length
        return 0

    def _rest(self) -> str:
        return self._take(len(self.text))

    def _take(self, end: int) -> str:
        start, self.sent = self.sent, max(self.sent, end)
        return self.text[start : self.sent]
