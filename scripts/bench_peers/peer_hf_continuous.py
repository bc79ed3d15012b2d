"""Peer: Hugging Face transformers' continuous batching, all requests of a round at once.

`peer_hf_continuous.py float32|bfloat16 MODEL_DIR THREADS`: texts only. Its manager lives as long as
the process, with blocks of 32 tokens that it shares between equal prefixes.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import transformers
from transformers.generation import ContinuousBatchingConfig
from wire import Reply, Request, serve

PAGE_TOKENS = 32
CACHE_TOKENS = 32_768
BATCH_TOKENS = 2_048


def load() -> tuple[Any, dict[str, Any]]:
    dtype, model_dir, threads = sys.argv[1:4]
    torch.set_num_threads(int(threads))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=getattr(torch, dtype)
    )
    model.requires_grad_(False)
    manager = model.init_continuous_batching(
        # No end of text: every text has the length that was asked for.
        generation_config=transformers.GenerationConfig(
            do_sample=False, eos_token_id=-1, pad_token_id=tokenizer.eos_token_id
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=PAGE_TOKENS,
            num_blocks=CACHE_TOKENS // PAGE_TOKENS,
            max_batch_tokens=BATCH_TOKENS,
        ),
    )
    manager.start()

    def answer(requests: list[Request]) -> Reply:
        start = time.perf_counter()
        ids = tokenizer([r["prompt"] for r in requests], add_special_tokens=False)["input_ids"]
        names = manager.add_requests(ids, max_new_tokens=requests[0]["max_tokens"])
        ended: dict[str, tuple[list[int], float]] = {}
        while len(ended) < len(names):
            result = manager.get_result(timeout=1)
            if result is None:
                if not manager.is_running():
                    raise RuntimeError("Error: its generation thread has stopped")
            elif result.is_finished():
                if result.error is not None:
                    raise RuntimeError(f"Error: {result.error}")
                ended[result.request_id] = (
                    list(result.generated_tokens),
                    time.perf_counter() - start,
                )
        return {
            "texts": [tokenizer.decode(ended[name][0]) for name in names],
            "tokens": sum(len(tokens) for tokens, _ in ended.values()),
            "latencies": [ended[name][1] for name in names],
        }

    return answer, {
        "version": f"transformers {transformers.__version__}, torch {torch.__version__}"
    }


if __name__ == "__main__":
    serve(load)
