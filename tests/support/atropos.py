"""What Atropos' trainers and environments send, for every suite that is about them."""

import random
from typing import Any

from tests.support.tables import read_table

JSON = dict[str, Any]

TRAINER: JSON = read_table(__file__, "atropos.yaml", dict[str, Any])
ENVIRONMENT: JSON = {"max_token_length": 512, "desired_name": "gsm8k", "weight": 1.0, "group_size": 8}

FIELDS = [
    *("tokens", "masks", "scores", "advantages", "ref_logprobs", "messages", "generation_params"),
    *("inference_logprobs", "overrides", "group_overrides", "images", "env_id"),
    *("distill_token_ids", "distill_logprobs"),
]


def group(number: int, size: int = 8, tokens: int = 3, **more: Any) -> JSON:
    """Group `number`, told by its tokens from others."""
    rows = [[number, place, *range(tokens - 2)] for place in range(size)]
    return {"tokens": rows, "masks": rows, "scores": [float(place) for place in range(size)], **more}


def large_group(number: int, size: int = 8, tokens: int = 512, first: int | None = None) -> JSON:
    """As a training run posts them: a quarter is the prompt, the rest has logprobs. `first` is its first token."""
    chance = random.Random(number)
    prompt = tokens // 4
    rows = [[chance.randrange(150_000) for _ in range(tokens)] for _ in range(size)]
    if first is not None:
        rows[0][0] = first
    return {
        "tokens": rows,
        "masks": [[-100] * prompt + row[prompt:] for row in rows],
        "scores": [chance.random() for _ in range(size)],
        "inference_logprobs": [
            [1.0] * prompt + [-chance.expovariate(1) for _ in range(tokens - prompt)] for _ in range(size)
        ],
        "env_id": 0,
    }


def numbers(batch: JSON) -> list[int]:
    """Which groups a reply of `/batch` holds."""
    return [each["tokens"][0][0] for each in batch["batch"] or []]
