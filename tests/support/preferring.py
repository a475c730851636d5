"""A judge's server that really follows what it is asked to prefer, as far as words can be counted."""

import json
from collections.abc import Mapping, Sequence

from tests.support.chat_server import Received, Reply
from tests.support.shown_prompts import ShownPrompt, shown_to

FEWER = "Prefer the reply that says it in fewer words."
MORE = "Prefer the reply that says it in more words."


def prefers(wish: str, texts: Sequence[str]) -> list[float]:
    """From 0 to 4; of what it does not understand it thinks the same of all."""
    lengths = [len(text.split()) for text in texts]
    spread = max(lengths) - min(lengths)
    if "question" in wish or "asks" in wish:
        return [4.0 if "?" in text else 0.0 for text in texts]
    if spread and "more words" in wish:
        return [4.0 * (length - min(lengths)) / spread for length in lengths]
    if spread and "fewer words" in wish:
        return [4.0 * (max(lengths) - length) / spread for length in lengths]
    return [2.0] * len(texts)


def preferring(number: int, received: Received) -> Reply:
    """Reads each criterion's description, and ranks by the sum over criteria."""
    shown = shown_to(received)
    texts = [*shown.texts.values()]
    marks = {name: prefers(description, texts) for name, description in shown.criteria.items()}
    sums = dict(zip(shown.texts, map(sum, zip(*marks.values(), strict=True)), strict=True))
    scores = {name: dict(zip(shown.texts, column, strict=True)) for name, column in marks.items()}
    tiers = [[name for name in sums if sums[name] == level] for level in sorted(set(sums.values()), reverse=True)]
    notes = dict.fromkeys(shown.texts, "Counted.")
    return said(json.dumps({"claims": [], "defects": [], "scores": scores, "ranking": tiers, "notes": notes}), received)


def write_verdict(shown: ShownPrompt, marks: Mapping[str, float]) -> str:
    """Under each criterion, and in the ranking, a reply has its mark."""
    tiers = [[name for name in marks if marks[name] == mark] for mark in sorted({*marks.values()}, reverse=True)]
    scores = {criterion: marks for criterion in shown.criteria}
    return json.dumps({"claims": [], "defects": [], "scores": scores, "ranking": tiers, "notes": {}})


def said(text: str, received: Received | None = None) -> Reply:
    """Of a request, with as many tokens as its prompt may have: one count of all prompts would be that of a server
    which cuts them."""
    return complete(text, 100 if received is None else count_tokens(received), 20)


def complete(text: str, prompt_tokens: int, completion_tokens: int, seconds: float = 0.0) -> Reply:
    message: Mapping[str, object] = {"role": "assistant", "content": text}
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
    }
    return Reply(json.dumps(body).encode(), seconds=seconds)


def count_tokens(received: Received) -> int:
    return sum(len(str(one)) for one in received.messages) // 4
