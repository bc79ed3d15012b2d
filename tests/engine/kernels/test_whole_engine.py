"""The whole engine on interpreted kernels gives what it gives in plain torch."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from engine import LLM, ChoiceParams, SamplingParams
from tests.engine.conftest import MOVES, SYSTEM, config

pytestmark = pytest.mark.slow

TEXTS = [" " + move for move in MOVES[:60:6]]
PROMPTS = [SYSTEM + " e2e4", SYSTEM + " e2e4 e7e5 a2a3"]


def answers(llm: LLM) -> list[tuple[float, ...]]:
    found: list[tuple[float, ...]] = []
    for turn in (" b2b3", " b2b3 c2c3"):
        prompts = [prompt + turn for prompt in PROMPTS]
        for output in llm.choose(prompts, [TEXTS] * 2):
            assert output.logprobs is not None and output.legal_mass is not None
            found.append((*output.logprobs, output.legal_mass))
        masked = ChoiceParams(scoring="masked", seed=5)
        found += [(o.index, o.logprob) for o in llm.choose(prompts, [TEXTS] * 2, masked)]
    params = [SamplingParams(max_tokens=4, temperature=t, seed=3, ignore_eos=True) for t in (0, 1)]
    found += [tuple(map(float, o.token_ids)) for o in llm.generate(PROMPTS, params)]
    return found


@pytest.mark.parametrize("changes", [{}, {"kv_cache_dtype": "fp8"}, {"deterministic": True}])
def test_its_answers_are_those_of_torch(checkpoint: str, changes: dict[str, Any]) -> None:
    plain, kernels = (
        LLM(config(checkpoint, attention_backend=name, **changes)) for name in ("torch", "triton")
    )
    # A number of an 8-bit cache may fall to the other side of a border.
    bound = 2e-5 if "kv_cache_dtype" not in changes else 5e-2
    for ours, theirs in zip(answers(kernels), answers(plain), strict=True):
        assert ours == pytest.approx(theirs, abs=bound)


class Again:
    """Records a call as a graph does: later it sees nothing but the places it saw at first."""

    def __init__(self, call: Callable[[], Tensor]) -> None:
        self._call = call
        self.result = call()

    def replay(self) -> None:
        self.result.copy_(self._call())


def test_recorded_steps_change_no_answer_and_few_are_needed(checkpoint: str) -> None:
    plain, recorded = (LLM(config(checkpoint, attention_backend="triton")) for _ in range(2))
    runner = recorded._core.runner
    runner._attention._padded = True  # type: ignore[attr-defined]
    runner.record_steps(64, Again)
    runner.resize(runner.num_slots)
    runner.pool._data.fill_(float("nan"))  # as memory that nobody wrote
    for ours, theirs in zip(answers(recorded), answers(plain), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    before = runner._graphs.replays if runner._graphs else 0
    written, expected = (llm.generate(PROMPTS, params) for llm in (recorded, plain))
    assert [o.token_ids for o in written] == [o.token_ids for o in expected]
    assert runner._graphs is not None and len(runner._graphs) <= 8
    assert runner._graphs.replays - before >= 15  # of 20 steps
