"""The routes by which servers give the scalars of reward models: what is sent, and what comes back.

vllm_classify   POST /classify     messages or text   raw, as `use_activation` is false
vllm_pooling    POST /pooling      messages or text   as the model's pooler gives it
sglang_classify POST /classify     text               raw
tei_predict     POST /predict      text               raw, as `raw_scores` is true
openrlhf        POST /get_reward   text               raw, or normalised by the server
"""

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from app.judges.chat_response import ChatResponse
from app.judges.failures import CallFailed
from app.judges.token_usage import TokenUsage

RewardRouteName = Literal["vllm_classify", "vllm_pooling", "sglang_classify", "tei_predict", "openrlhf"]


@dataclass(frozen=True)
class RewardQuestion:
    """A conversation that ends with the reply. `text` is None where the server applies the chat template; else it is
    the conversation as the model reads it, and `opening` the part before the reply."""

    model: str
    messages: tuple[Mapping[str, JsonValue], ...]
    text: str | None = None
    opening: str = ""


@dataclass(frozen=True)
class RewardRoute:
    path: str
    build_body: Callable[[RewardQuestion], dict[str, JsonValue]]
    find_reward: Callable[[object], object]
    """Where the number is in the answer. KeyError, IndexError or TypeError for another form."""


def parse_reward(route: RewardRoute, body: bytes) -> ChatResponse:
    """The number as text. CallFailed when there is not exactly one finite number."""
    try:
        value: object = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise CallFailed("the reward model's server sent something that is not JSON", status=200) from None
    try:
        found = _unwrap(route.find_reward(value))
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error, struct.error) as error:
        words = f": {error}" if isinstance(error, ValueError) and not isinstance(error, binascii.Error) else ""
        raise CallFailed(f"the reward model's server sent an answer of another form{words}", status=200) from None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise CallFailed("the reward model's server sent something that is no number", status=200)
    return ChatResponse(
        text=repr(float(found)), cut_off=False, refused=False, usage=TokenUsage(_count_tokens(value), 0)
    )


def _unwrap(found: object) -> object:
    """The one number in nested lists. ValueError when there are several."""
    while isinstance(found, list):
        if len(found) != 1:
            raise ValueError(f"{len(found)} values, and a reward model gives one")
        found = found[0]
    return found


def _count_tokens(value: object) -> int | None:
    usage = value.get("usage") if isinstance(value, dict) else None
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def _get(value: object, *path: str | int) -> object:
    for step in path:
        value = value[step]  # type: ignore[index]
    return value


def _build_vllm_body(question: RewardQuestion) -> dict[str, JsonValue]:
    if question.text is None:
        return {"model": question.model, "messages": [dict(message) for message in question.messages]}
    return {"model": question.model, "input": question.text}


def _build_classify_body(question: RewardQuestion) -> dict[str, JsonValue]:
    return {**_build_vllm_body(question), "use_activation": False}


def _find_pooled(value: object) -> object:
    """A list, a list of lists, or 32-bit numbers as base64 text."""
    data = _get(_require_one(_get(value, "data")), "data")
    if isinstance(data, str):
        packed = base64.b64decode(data, validate=True)
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return data


def _require_one(value: object) -> object:
    """ValueError unless there is one answer to the one conversation."""
    if not isinstance(value, list) or len(value) != 1:
        raise ValueError("not one answer to one conversation")
    return value[0]


def _find_embedding(value: object) -> object:
    return _get(_require_one(value) if isinstance(value, list) else value, "embedding")


def _find_score(value: object) -> object:
    """TEI has one entry for each class."""
    entry = _require_one(value)
    return _get(_require_one(entry) if isinstance(entry, list) else entry, "score")


def _build_openrlhf_body(question: RewardQuestion) -> dict[str, JsonValue]:
    return {"query": [question.text], "prompts": [question.opening], "labels": [""]}


ROUTES: Final[Mapping[RewardRouteName, RewardRoute]] = {
    "vllm_classify": RewardRoute(
        "/classify", _build_classify_body, lambda value: _get(_require_one(_get(value, "data")), "probs")
    ),
    "vllm_pooling": RewardRoute("/pooling", _build_vllm_body, _find_pooled),
    "sglang_classify": RewardRoute("/classify", lambda question: {"text": question.text}, _find_embedding),
    "tei_predict": RewardRoute("/predict", lambda question: {"inputs": question.text, "raw_scores": True}, _find_score),
    "openrlhf": RewardRoute("/get_reward", _build_openrlhf_body, lambda value: _get(value, "rewards")),
}
