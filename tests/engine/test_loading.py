"""Model files: what loads, and what is said when it does not."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import LLM, ChoiceParams, ModelLoadError, SamplingParams, load_tokenizer
from tests.engine.conftest import SYSTEM, config, make_checkpoint

GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)


@pytest.fixture
def copy(checkpoint: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(model: str | Path) -> str:
    """The one sentence with which a model is refused."""
    with pytest.raises(ModelLoadError) as caught:
        LLM(config(str(model)))
    text = str(caught.value)
    assert text.endswith(".") and "\n" not in text
    return text


def write_gguf(path: Path, directory: str) -> None:
    """The checkpoint as llama.cpp's converter writes it."""
    import gguf
    from safetensors.torch import load_file

    settings = json.loads((Path(directory) / "config.json").read_text())
    tokenizer = json.loads((Path(directory) / "tokenizer.json").read_text())
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    heads, kv_heads = settings["num_attention_heads"], settings["num_key_value_heads"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(settings["max_position_embeddings"])
    writer.add_embedding_length(settings["hidden_size"])
    writer.add_block_count(settings["num_hidden_layers"])
    writer.add_feed_forward_length(settings["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(settings["rms_norm_eps"])
    writer.add_rope_dimension_count(settings["hidden_size"] // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3] + [1] * (len(vocabulary) - 1))
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    for name in ("bos", "eos"):
        getattr(writer, f"add_{name}_token_id")(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, settings["num_hidden_layers"])
    for name, tensor in load_file(str(Path(directory) / "model.safetensors")).items():
        weight = tensor.float().numpy()
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if part in name:
                halves = weight.reshape(count, 2, weight.shape[0] // count // 2, -1)
                weight = halves.swapaxes(1, 2).reshape(weight.shape)
        stored = names.get_name(name.removesuffix(".weight"))
        writer.add_tensor(f"{stored}.weight", np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_gives_what_its_directory_gives(checkpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, checkpoint)
    ours, theirs = LLM(config(str(path))), LLM(config(checkpoint))
    texts = [" e2e4", " d2d4", " O-O"]
    prompt = theirs.tokenizer.encode(SYSTEM)
    assert ours.tokenizer.encode(SYSTEM) == prompt
    greedy = ChoiceParams(temperature=0)
    got, expected = (llm.choose([prompt], [texts], greedy)[0] for llm in (ours, theirs))
    assert got.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    assert ours.generate([prompt], GREEDY)[0].text == theirs.generate([prompt], GREEDY)[0].text
    assert LLM(config(str(tmp_path))).generate([prompt], GREEDY)  # the directory with one such file
    (tmp_path / "cut.gguf").write_bytes(path.read_bytes()[:-5000])
    assert "cut.gguf" in refusal(tmp_path / "cut.gguf")
    (tmp_path / "head.gguf").write_bytes(path.read_bytes()[:300])
    assert "head.gguf" in refusal(tmp_path / "head.gguf")
    assert "2 GGUF files" in refusal(tmp_path) or "3 GGUF files" in refusal(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": False},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "head_dim": 16},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ],
)
def test_the_familys_variants_agree_with_transformers(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    from transformers import LlamaForCausalLM

    directory = str(make_checkpoint(tmp_path, **changes))
    llm = LLM(config(directory))
    prompt = (llm.tokenizer.encode(SYSTEM) * 6)[:300]
    reference = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    choices = [" " + letter for letter in "abcdefgh"]
    ids = [llm.tokenizer.encode_choice(text) for text in choices]
    with torch.inference_mode():
        logs = torch.log_softmax(reference(torch.tensor([prompt])).logits[0, -1].double(), dim=-1)
    single = [text for text, one in zip(choices, ids, strict=True) if len(one) == 1]
    assert len(single) > 2
    [output] = llm.choose([prompt], [single])
    expected = [float(logs[one[0]]) for one in ids if len(one) == 1]
    assert output.legal_mass == pytest.approx(sum(np.exp(expected)), rel=1e-3)
    for got, value in zip(output.logprobs or (), expected, strict=True):
        assert got + np.log(output.legal_mass) == pytest.approx(value, abs=1e-4)


def test_weights_in_several_files(checkpoint: str, reference: Any, tmp_path: Path) -> None:
    reference.save_pretrained(tmp_path, max_shard_size="20KB")
    shutil.copy(Path(checkpoint) / "tokenizer.json", tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    whole, parts = (LLM(config(str(path))) for path in (checkpoint, tmp_path))
    assert parts.generate([SYSTEM], GREEDY)[0].text == whole.generate([SYSTEM], GREEDY)[0].text
    next(tmp_path.glob("*.safetensors")).unlink()
    assert "lacks model-0000" in refusal(tmp_path)


def test_a_model_outlives_its_files(copy: Path) -> None:
    """A mapped file that is overwritten during training would end the process with a bus error."""
    llm = LLM(config(str(copy)))
    before = llm.generate([SYSTEM], GREEDY)[0].text
    (copy / "model.safetensors").write_bytes(b"")
    assert llm.generate([SYSTEM], GREEDY)[0].text == before


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert "check the path" in refusal(tmp_path / "nowhere")
    assert "check the path" in refusal(tmp_path / "nowhere.gguf")
    assert "no config.json" in refusal(tmp_path)
    (tmp_path / "text.gguf").write_text("not a model")
    assert "not a GGUF file" in refusal(tmp_path / "text.gguf")


def test_damaged_files_are_named(copy: Path) -> None:
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "model.safetensors is damaged" in refusal(copy)
    weights.write_bytes(b"")
    assert "model.safetensors is damaged" in refusal(copy)
    weights.unlink()
    assert "no safetensors" in refusal(copy)
    weights.write_bytes(whole)
    (copy / "tokenizer.json").write_text("{")
    assert "tokenizer.json is damaged" in refusal(copy)
    (copy / "tokenizer.json").unlink()
    assert "tokenizer" in refusal(copy)
    (copy / "config.json").write_text("[")
    assert "config.json cannot be read" in refusal(copy)


def test_weights_that_do_not_fit_the_configuration(copy: Path) -> None:
    edit(copy / "config.json", num_hidden_layers=3)
    assert "lacks the weight model.layers.2" in refusal(copy)
    edit(copy / "config.json", num_hidden_layers=2, hidden_size=64)
    assert "does not match" in refusal(copy)
    edit(copy / "config.json", hidden_size=32, intermediate_size=48)
    assert "does not match" in refusal(copy)


def test_unsupported_models_are_refused_by_name(copy: Path) -> None:
    edit(copy / "config.json", architectures=["GPT2LMHeadModel"])
    message = refusal(copy)
    assert "GPT2LMHeadModel" in message and "LlamaForCausalLM" in message
    edit(copy / "config.json", architectures=["LlamaForCausalLM"], hidden_act="relu")
    assert "relu" in refusal(copy)
    edit(copy / "config.json", hidden_act="silu", rope_parameters={"rope_type": "own", "factor": 2})
    message = refusal(copy)
    assert "own" in message and "yarn" in message


def test_a_device_that_is_not_there(checkpoint: str) -> None:
    for device in ("abacus", "meta", "mps", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(ModelLoadError, match=r"use (device )?auto"):
            LLM(config(checkpoint, device=device))


def test_bfloat16_is_near_float32(checkpoint: str) -> None:
    texts = [" e2e4", " d2d4", " O-O"]
    exact, short = (
        LLM(config(checkpoint, dtype=dtype)).choose([SYSTEM], [texts])[0].logprobs
        for dtype in ("float32", "bfloat16")
    )
    assert short == pytest.approx(exact, abs=0.3)


def test_the_tokenizer_survives_its_serialisation(checkpoint: str) -> None:
    import engine

    tokenizer = load_tokenizer(checkpoint)
    again = engine.Tokenizer.from_json(tokenizer.to_json())
    for text in (SYSTEM, " e2e4", "한국 🙂", ""):
        assert again.encode(text) == tokenizer.encode(text)
        assert again.decode(again.encode(text)) == text
    assert again.vocab_size == tokenizer.vocab_size
    assert tokenizer.eos_token_ids == (0,)


def test_a_tokenizer_never_truncates(copy: Path) -> None:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(copy / "tokenizer.json"))
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(copy / "tokenizer.json"))
    tokenizer = load_tokenizer(str(copy))
    assert tokenizer.decode(tokenizer.encode(SYSTEM)) == SYSTEM


def test_chat_messages_use_the_models_template(copy: Path) -> None:
    messages = [{"role": "user", "content": "e2e4"}]
    with pytest.raises(ValueError, match="no chat template"):
        LLM(config(str(copy))).generate([messages], GREEDY)
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    (copy / "chat_template.jinja").write_text(
        template + "{% if add_generation_prompt %}[you]{% endif %}"
    )
    llm = LLM(config(str(copy)))
    tokenizer = llm.tokenizer
    assert tokenizer.decode(tokenizer.apply_chat_template(messages)) == "[user] e2e4\n[you]"
    [ours], [text] = llm.generate([messages], GREEDY), llm.generate(["[user] e2e4\n[you]"], GREEDY)
    assert ours.token_ids == text.token_ids
