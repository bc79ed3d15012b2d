"""Choices are the tokens that a reply would begin with, whatever the tokenizer does with white space."""

import pytest
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from engine import Tokenizer


def byte_pairs(pattern: str) -> Tokenizer:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["Game: e2 e4 e2 e4 a7"] * 20, trainer)
    return Tokenizer.from_json(backend.to_str())


def sentence_pieces() -> Tokenizer:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(show_progress=False)
    backend.train_from_iterator(["Game: e2 e4 e2 e4 a7"] * 20, trainer)
    return Tokenizer.from_json(backend.to_str())


@pytest.mark.parametrize("pattern", [r" ?\w+|\s+", r" ?\w+|\s+(?!\S)|\s+"])
def test_a_tokenizer_that_joins_white_space_gave_choices_without_their_space(pattern: str) -> None:
    tokenizer = byte_pairs(pattern)
    assert list(tokenizer.encode_choice(" e2")) == tokenizer.encode(" e2")
    assert len(tokenizer.encode_choice(" e2")) == 1


@pytest.mark.parametrize("make", [lambda: byte_pairs(r" ?\w+|\s+"), sentence_pieces])
def test_a_choice_goes_on_as_the_whole_text_would(make) -> None:  # type: ignore[no-untyped-def]
    tokenizer = make()
    prompt = tokenizer.encode("Game: e2")
    assert prompt + list(tokenizer.encode_choice(" e4")) == tokenizer.encode("Game: e2 e4")
