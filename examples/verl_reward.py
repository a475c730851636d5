"""verl's reward function: each answer is scored by a gateway, beside the other answers to its prompt.

atropos-envs tasks train.parquet --env gsm8k --for verl
python -m verl.trainer.main_ppo data.train_files=train.parquet \
    reward.custom_reward_function.path=examples/verl_reward.py \
    reward.custom_reward_function.name=compute_score \
    +reward.custom_reward_function.reward_kwargs.gateway=http://127.0.0.1:8000 \
    +reward.custom_reward_function.reward_kwargs.run=my-run \
    +reward.custom_reward_function.reward_kwargs.group_size=8 …

`group_size` is `actor_rollout_ref.rollout.n`: answers of one prompt that judges compare. The key comes from
`ATROPOS_ENVS_API_KEY`.

verl does not say that an answer was cut off. With `tokenizer`, the model's folder or name, and `max_response_tokens`,
which is `data.max_response_length`, answers of that many tokens count as cut off, and earn nothing.
"""

import asyncio
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
from tokenizers import Tokenizer

PATIENCE_SECONDS = 900.0
"""For a gateway that is restarted, or whose judge is down. verl knows no answer without a reward: then it stops."""
END = "<|im_end|>"
"""Put behind an answer that ended by itself: verl has taken the model's own end token off."""


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    *,
    gateway: str = "http://127.0.0.1:8000",
    run: str = "verl",
    group_size: int = 1,
    patience_seconds: float = PATIENCE_SECONDS,
    tokenizer: str | None = None,
    max_response_tokens: int | None = None,
    **_: Any,
) -> dict[str, float | str]:
    """The reward under `score`, which verl trains on; the other entries are logged. `ground_truth` is the
    row's label, which names the task."""
    url = f"{gateway.rstrip('/')}/compat/slime/{data_source}"
    options = {"run": run, "group_size": str(group_size), "reply": "object"}
    key = os.environ.get("ATROPOS_ENVS_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"response": solution_str, "label": ground_truth}
    if tokenizer is not None and max_response_tokens is not None:
        options["eos"] = END
        if count_tokens(tokenizer, solution_str) < max_response_tokens:
            body["response"] += END
    end = time.monotonic() + patience_seconds
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=120)) as session:
        while True:
            try:
                async with session.post(url, params=options, json=body) as reply:
                    if reply.ok:
                        return logged(await reply.json())
                    said = f"{url} answers {reply.status}: {await reply.text()}"
                    if reply.status < 500 and reply.status != 429:
                        raise ValueError(said)
            except (aiohttp.ClientError, TimeoutError) as error:
                said = f"{url} does not answer: {error!r}"
            if time.monotonic() >= end:
                raise RuntimeError(said)
            await asyncio.sleep(2)


def count_tokens(tokenizer: str, text: str) -> int:
    """Of the decoded answer: where its text is read as fewer tokens than were sampled, a cut may go unnoticed."""
    return len(load_tokenizer(tokenizer).encode(text, add_special_tokens=False).ids)


@cache
def load_tokenizer(name: str) -> Tokenizer:
    file = Path(name) / "tokenizer.json"
    return Tokenizer.from_file(str(file)) if file.exists() else Tokenizer.from_pretrained(name)


def logged(told: dict[str, Any]) -> dict[str, float | str]:
    """The same names for every answer: verl makes a column of each. The rest is at the gateway, by the group's id."""
    return {"score": told["reward"], "absolute": told["score"], "group_id": told["group_id"]}
