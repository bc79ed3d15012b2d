"""Peer: Hugging Face transformers' `generate`: moves, constrained to the legal ones by a token trie,
or texts of a given length.

`peer_hf.py seq|batch float32|bfloat16 MODEL_DIR THREADS`: one request at a time, or all requests of
a round as one statically padded batch. Neither keeps anything between rounds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import transformers
from wire import Reply, Request, serve

MAX_NEW_TOKENS = 7  # the longest move in these tokens, and the end of the reply


def load() -> tuple[Any, dict[str, Any]]:
    mode, dtype, model_dir, threads = sys.argv[1:5]
    torch.set_num_threads(int(threads))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    tokenizer.pad_token = tokenizer.eos_token
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=getattr(torch, dtype)
    )
    model.requires_grad_(False)
    end: int = tokenizer.eos_token_id

    def trie(choices: list[str]) -> dict[int, Any]:
        root: dict[int, Any] = {}
        for ids in tokenizer(choices, add_special_tokens=False)["input_ids"]:
            node = root
            for token in ids:
                node = node.setdefault(token, {})
            node[end] = {}
        return root

    def generate(batch: list[Request]) -> list[str]:
        encoded = tokenizer(
            [request["prompt"] for request in batch],
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
        )
        width = encoded["input_ids"].shape[1]
        if count := batch[0].get("max_tokens"):
            with torch.inference_mode():
                out = model.generate(
                    **encoded,
                    max_new_tokens=count,
                    min_new_tokens=count,
                    do_sample=False,
                    pad_token_id=end,
                )
            return tokenizer.batch_decode(out[:, width:])
        tries = [trie(request["choices"]) for request in batch]

        def allowed(row: int, ids: torch.Tensor) -> list[int]:
            node = tries[row]
            for token in ids[width:].tolist():
                node = node.get(token, {})
            return list(node) or [end]

        with torch.inference_mode():
            out = model.generate(
                **encoded,
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=False,
                prefix_allowed_tokens_fn=allowed,
                pad_token_id=end,
            )
        return [str(tokenizer.decode(row[width:], skip_special_tokens=True)) for row in out]

    def answer(requests: list[Request]) -> Reply:
        texts: list[str] = []
        latencies: list[float] = []
        batches = [requests] if mode == "batch" else [[request] for request in requests]
        for batch in batches:
            start = time.perf_counter()
            texts += generate(batch)
            latencies += [time.perf_counter() - start] * len(batch)
        tokens = sum(request.get("max_tokens", 0) for request in requests)
        return {"texts": texts, "tokens": tokens, "latencies": latencies}

    return answer, {
        "version": f"transformers {transformers.__version__}, torch {torch.__version__}"
    }


if __name__ == "__main__":
    serve(load)
