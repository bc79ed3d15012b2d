"""Text to token ids and back. Needs only the `tokenizers` package, so that processes without torch can use it.

It knows nothing of requests and models; `load_tokenizer` finds the files of a model reference.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from engine.errors import BoundaryMerge, ModelLoadError
from engine.files import ModelFiles, read_json, resolve_model

Message = dict[str, str]
_REPLACEMENT = "\ufffd"  # what an incomplete character decodes to
_CACHED_TEXTS = 1 << 15  # choices and boundaries remembered; bounds the memory of long runs
_MAX_TAIL = 16  # tokens of a prompt's end that are looked at
# What a choice may follow, to see its tokens. A letter comes first: white space may be taken together with
# the space that a choice begins with.
_ANCHORS = ("a", ":", "\n", "0")


class Tokenizer:
    """A Hugging Face tokenizer with what the engine asks of it."""

    def __init__(
        self,
        backend: Backend,
        eos_token_ids: tuple[int, ...] = (),
        chat_template: str | None = None,
        special_tokens: dict[str, str] | None = None,
    ) -> None:
        backend.no_truncation()  # what a tokenizer.json asks for here is meant for training
        backend.no_padding()
        self._backend = backend
        self.eos_token_ids = eos_token_ids
        self._chat_template = chat_template
        self._special_tokens = special_tokens or {}
        self._anchors = tuple((text, self.encode(text)) for text in _ANCHORS)
        # Whether a text on its own has other tokens than behind another one: the SentencePiece kind puts a
        # space before it.
        self._prefixes = any(
            self.encode(before + text) != self.encode(before) + self.encode(text)
            for before, text in (("a", " a"), ("\n", "a"))
        )
        added = backend.get_added_tokens_decoder()
        self._special = frozenset(token for token, what in added.items() if what.special)
        self.encode_choice = lru_cache(_CACHED_TEXTS)(self._encode_choice)
        self._is_readable = lru_cache(_CACHED_TEXTS)(self._decodes_alone)
        self._is_whole = lru_cache(_CACHED_TEXTS)(self._round_trips)
        self._merges = lru_cache(_CACHED_TEXTS)(self._joins_otherwise)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """From what `to_json` gave. Carries no chat template and no end-of-text ids."""
        return cls(Backend.from_str(text))

    def to_json(self) -> str:
        """The Hugging Face `tokenizers` serialisation."""
        return str(self._backend.to_str())

    @property
    def vocab_size(self) -> int:
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Token ids of the text as it stands: no special tokens are added."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a whole prompt, with the special tokens that the model expects around a text."""
        return list(self._backend.encode(text, add_special_tokens=True).ids)

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=skip_special_tokens))

    def _encode_choice(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that goes on from a prompt (remembered: the same moves come again)."""
        if not self._prefixes:
            return tuple(self.encode(text))
        for anchor, ids in self._anchors:
            joined = self.encode(anchor + text)
            if joined[: len(ids)] == ids:
                return tuple(joined[len(ids) :])
        raise BoundaryMerge(
            f"The choice {text!r} joins with whatever stands before it; begin choices with a space."
        )

    def check_boundary(self, prompt: Sequence[int], choices: Sequence[tuple[int, ...]]) -> None:
        """Raise BoundaryMerge if the tokens of a choice are not those it would have in the whole text.

        For a byte-pair tokenizer a sequence is what the tokenizer itself would give exactly when every pair
        of neighbours is, so the tokens on both sides of the boundary decide: on the left as many as are needed
        for a text that has these tokens on its own, on the right as many as make whole characters. Nothing
        merges with a special token such as those of chat templates.
        """
        if prompt[-1] in self._special:
            return
        tail: tuple[int, ...] = ()
        for length in range(1, min(len(prompt), _MAX_TAIL) + 1):
            tail = tuple(prompt[-length:])
            if self._is_whole(tail):
                break
        for first, ids in {ids[0]: ids for ids in choices}.items():
            if self._merges(tail, (first,) if self._is_readable(first) else ids):
                raise BoundaryMerge(
                    f"A choice beginning with {self.decode([*ids])!r} would merge with the prompt's end "
                    f"{self.decode([*tail])!r}; end the prompt before the space and begin choices with it."
                )

    def _decodes_alone(self, token: int) -> bool:
        return _REPLACEMENT not in self.decode([token])

    def _round_trips(self, ids: tuple[int, ...]) -> bool:
        """Whether the text of these tokens has these tokens."""
        text = self.decode([*ids])
        return _REPLACEMENT not in text and self.encode(text) == [*ids]

    def _joins_otherwise(self, tail: tuple[int, ...], head: tuple[int, ...]) -> bool:
        left = self.encode(self.decode([*tail]))
        return self.encode(self.decode([*tail, *head])) != [*left, *head]

    def apply_chat_template(self, messages: list[Message]) -> list[int]:
        """Token ids of a conversation, up to where the model's answer begins.

        Raises ValueError when the model has no chat template.
        """
        if self._chat_template is None:
            raise ValueError("The model has no chat template; send the prompt as a text instead.")
        from transformers.utils import chat_template_utils

        render: Any = chat_template_utils.render_jinja_template
        rendered = render(
            [messages],
            chat_template=self._chat_template,
            add_generation_prompt=True,
            **self._special_tokens,
        )[0]
        return self.encode(rendered[0])


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model directory, Hugging Face id or GGUF file; ModelLoadError if there is none."""
    return tokenizer_of(resolve_model(model))


def tokenizer_of(files: ModelFiles) -> Tokenizer:
    """The tokenizer among a model's files."""
    if files.gguf is not None:
        return _from_transformers(files)
    path = files.directory / "tokenizer.json"
    if not path.exists():
        return _from_transformers(files)
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the package raises bare Exception
        raise ModelLoadError(
            f"The tokenizer file {path} is damaged ({error}); fetch it again."
        ) from None
    config = _optional_json(files.directory / "tokenizer_config.json")
    special = {
        name: _content(config[name]) for name in ("bos_token", "eos_token") if config.get(name)
    }
    template = config.get("chat_template")
    template_file = files.directory / "chat_template.jinja"
    if template_file.exists():
        template = template_file.read_text(encoding="utf-8")
    if isinstance(template, list):  # several named templates
        template = next((t["template"] for t in template if t["name"] == "default"), None)
    return Tokenizer(backend, _eos_ids(files.directory, backend, special), template, special)


def _from_transformers(files: ModelFiles) -> Tokenizer:
    try:
        tokenizer: Any
        if (
            files.gguf
        ):  # the automatic class would read the whole file once more for its configuration
            from transformers import PreTrainedTokenizerFast

            tokenizer = PreTrainedTokenizerFast.from_pretrained(
                str(files.directory), gguf_file=files.gguf.name
            )
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(files.directory))
        backend = tokenizer.backend_tokenizer
    except Exception as error:
        raise ModelLoadError(
            f"No usable tokenizer in {files.name} ({_first_line(error)}); "
            "use a directory with tokenizer.json or a GGUF file that carries its tokenizer."
        ) from None
    special = {
        name: token
        for name in ("bos_token", "eos_token")
        if (token := getattr(tokenizer, name, None)) is not None
    }
    eos = tokenizer.eos_token_id
    return Tokenizer(backend, () if eos is None else (int(eos),), tokenizer.chat_template, special)


def _eos_ids(directory: Path, backend: Backend, special: dict[str, str]) -> tuple[int, ...]:
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = _optional_json(directory / name).get("eos_token_id")
        ids.update([value] if isinstance(value, int) else value or [])
    if "eos_token" in special:
        token_id = backend.token_to_id(special["eos_token"])
        ids.update([] if token_id is None else [token_id])
    return tuple(sorted(ids))


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".") or type(error).__name__
