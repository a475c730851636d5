"""What statistics count of completions: the same whether they are whole or reduced."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.groups import Rollout
from app.domain.keeping import count_written_characters


@dataclass(frozen=True)
class CompletionSizes:
    """`different` counts those of which no earlier one is equal."""

    lengths: list[int]
    tokens: list[int]
    different: int


def measure_completions(rollouts: Sequence[Rollout]) -> CompletionSizes:
    if any([rollout.reduced is not None for rollout in rollouts]):
        return _measure_reduced(rollouts)
    completions = [rollout.completion for rollout in rollouts]
    texts = [completion.text for completion in completions if completion.text is not None]
    lengths = [len(text) for text in texts]
    different = len(set(texts))
    if len(texts) < len(completions):
        others = [completion for completion in completions if completion.text is None]
        lengths += [count_written_characters(completion.messages or ()) for completion in others]
        different += len({json.dumps(completion.identity) for completion in others})
    tokens = [len(ids) for completion in completions if (ids := completion.token_ids) is not None]
    return CompletionSizes(lengths, tokens, different)


def _measure_reduced(rollouts: Sequence[Rollout]) -> CompletionSizes:
    measured = [_measure_one(rollout) for rollout in rollouts]
    tokens = [count for _, count, _ in measured if count is not None]
    return CompletionSizes([length for length, _, _ in measured], tokens, len({known for _, _, known in measured}))


def _measure_one(rollout: Rollout) -> tuple[int, int | None, tuple[str, str]]:
    """Length, count of tokens, and what equal ones share: texts are compared by themselves, messages with all that
    identifies them."""
    completion, reduced = rollout.completion, rollout.reduced
    tokens = None if completion.token_ids is None else len(completion.token_ids)
    if reduced is not None and reduced.tokens is not None:
        tokens = reduced.tokens.count
    if reduced is not None and reduced.text is not None:
        text = reduced.text
        known = ("text", text.sha256) if text.count is None else ("messages", reduced.identity)
        return text.characters or 0, tokens, known
    if completion.text is not None:
        return len(completion.text), tokens, ("said", completion.text)
    identity = "" if reduced is None else reduced.identity
    length = count_written_characters(completion.messages or ())
    return length, tokens, ("messages", identity or completion.identity_digest)
