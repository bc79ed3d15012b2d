"""Choices have the tokens that a reply would have, whatever the tokenizer does with white space, digits and bytes.

A tokenizer of each supported family, made here: the same normaliser, splitting, byte handling and decoder, trained
on a few lines.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from engine import BoundaryMerge, Tokenizer

GPT4 = (  # how the byte-level families of 2024 and later split words; {} is the number of digits together
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "Game: e2e4 e7e5 g1f3 b8c6 a9a10 O-O O-O-O Nf3+ e8=Q# 12. Qxd5 123 456\nThe move is:\n\n  e2e4",
    "초 차 장기 a9a1 a10a9 楚 車 漢. You are a chess player; answer with one legal move. don't it's",
] * 20
SPECIAL = ["<|end|>", "<|assistant|>"]


def finish(backend: Backend) -> Tokenizer:
    backend.add_special_tokens(SPECIAL)  # type: ignore[arg-type]
    return Tokenizer.from_json(backend.to_str())


def byte_level(
    *splits: pre_tokenizers.PreTokenizer, use_regex: bool = False, ignore_merges: bool = False
) -> Backend:
    backend = Backend(models.BPE(ignore_merges=ignore_merges))
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, last])  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def smollm2() -> Tokenizer:
    return finish(byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True))


def llama3() -> Tokenizer:
    split = pre_tokenizers.Split(Regex(GPT4.format("{1,3}")), behavior="isolated")
    return finish(byte_level(split, ignore_merges=True))


def qwen2() -> Tokenizer:
    split = pre_tokenizers.Split(Regex(GPT4.format("")), behavior="isolated")
    backend = byte_level(split)
    backend.normalizer = normalizers.NFC()  # type: ignore[assignment]
    return finish(backend)


def pieces() -> models.BPE:
    """Pieces of words that begin with the mark of a space, and all bytes."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")  # type: ignore[assignment]
    corpus = [line.replace("차", "") for line in CORPUS]  # a character that only has bytes
    backend.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model: Any = json.loads(backend.to_str())["model"]
    vocab = dict(model["vocab"])
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    vocab["▁▁"] = len(vocab)
    merges = [("▁", "▁"), *map(tuple, model["merges"])]
    return models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True)


def sentence_pieces(strip: bool) -> Backend:
    backend = Backend(pieces())
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if strip:
        parts.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(parts)  # type: ignore[assignment]
    return backend


def llama2() -> Tokenizer:
    backend = sentence_pieces(strip=True)
    backend.normalizer = normalizers.Sequence(  # type: ignore[assignment]
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return finish(backend)


def phi3() -> Tokenizer:
    """As Llama 2, with special tokens that swallow the white space behind them."""
    backend = sentence_pieces(strip=True)
    backend.normalizer = normalizers.Sequence(  # type: ignore[assignment]
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.add_special_tokens([AddedToken(name, rstrip=True, special=True) for name in SPECIAL])
    return Tokenizer.from_json(backend.to_str())


def mistral() -> Tokenizer:
    backend = sentence_pieces(strip=True)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)  # type: ignore[assignment]
    return finish(backend)


def gemma() -> Tokenizer:
    backend = sentence_pieces(strip=False)
    backend.normalizer = normalizers.Replace(" ", "▁")  # type: ignore[assignment]
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")  # type: ignore[assignment]
    return finish(backend)


FAMILIES: list[Callable[[], Tokenizer]] = [smollm2, llama3, qwen2, llama2, phi3, mistral, gemma]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda make: make.__name__)
def family(request: pytest.FixtureRequest) -> Tokenizer:
    made: Tokenizer = request.param()
    return made


MOVES = [" e7e5", " O-O", " O-O-O", " a9a1", " a9a10", " Nf3+", " e8=Q#", " 차", " 장 10", " 漢"]
ENDS = [
    "Game:",
    "Game: e2e4",
    "g1f3 12",
    "123",
    "It is: O-O",
    "초",
    "x차",
    "車",
    "don",
    "a\n",
    "a\n\n",
]


def accepts(tokenizer: Tokenizer, prompt: str, choice: str) -> bool:
    try:
        ids = tokenizer.encode_choice(choice)
        tokenizer.check_boundary(tokenizer.encode(prompt), [ids])
    except BoundaryMerge:
        return False
    return True


@pytest.mark.parametrize("end", [*ENDS, "The chess pla"])
def test_a_choice_that_begins_with_its_space_goes_on_as_the_whole_text_would(
    family: Tokenizer, end: str
) -> None:
    prompt = family.encode(end)
    for move in MOVES:
        assert accepts(family, end, move), move
        assert prompt + list(family.encode_choice(move)) == family.encode(end + move)


def test_a_boundary_is_refused_exactly_where_the_whole_text_has_other_tokens(
    family: Tokenizer,
) -> None:
    ends = [*ENDS, "a ", "a  ", "Game: ", "ch", "O-", "It is: O-O-", "12. Q", "it'", "e8="]
    starts = ["e2", "2", "12", "3", "  e2", "-O", "'s", "x", "\n", " ", "#", "차", "ess", "\n\ne2"]
    merged = 0
    for end in ends:
        for start in [*starts, *MOVES]:
            try:
                ids = family.encode_choice(start)
            except BoundaryMerge:
                assert not start.startswith(" ")
                continue
            apart = family.encode(end) + list(ids)
            same = apart == family.encode(end + start)
            assert accepts(family, end, start) == same, (end, start)
            merged += not same
    assert merged > 5


def test_nothing_merges_with_the_end_of_a_chat_template(family: Tokenizer) -> None:
    for end in ("Hello<|assistant|>", "Hello<|assistant|>\n"):
        for move in MOVES:
            assert accepts(family, end, move), (end, move)


def test_the_tokens_of_a_choice_are_whole(family: Tokenizer) -> None:
    for text in [*MOVES, "e2e4", "a9a10", "O-O", ":", "0-0", "\n", "x"]:
        try:
            ids = family.encode_choice(text)
        except BoundaryMerge:
            continue
        assert family.decode([*family.encode("Game:"), *ids]) == "Game:" + text


@pytest.mark.parametrize("pattern", [r" ?\w+|\s+", r" ?\w+|\s+(?!\S)|\s+"])
def test_a_tokenizer_that_joins_white_space_gave_choices_without_their_space(pattern: str) -> None:
    tokenizer = finish(byte_level(pre_tokenizers.Split(Regex(pattern), behavior="isolated")))
    assert list(tokenizer.encode_choice(" e2")) == tokenizer.encode(" e2")
    assert tokenizer.decode(list(tokenizer.encode_choice(" e2"))) == " e2"


def test_remembered_texts_are_bounded() -> None:
    tokenizer = smollm2()
    for number in range(40_000):
        tokenizer.encode_choice(f" {number}")
    info = tokenizer.encode_choice.cache_info()
    assert info.maxsize is not None and info.currsize == info.maxsize <= 40_000
