"""Gates on stage directions and on actions in brackets."""

import re
from typing import Final

from app.domain.judging import GateFacts
from app.judges.text_normalisation import Reply, count_words, split_words

MOST_NARRATED_SHARE: Final = 0.6
"""Largest share of a reply's words inside asterisks or brackets."""
FEWEST_NARRATED_WORDS: Final = 12
"""Words below which the gate does not apply: a gesture alone is a valid reply."""

_NARRATED: Final = re.compile(r"\*\*[^*\n]*\*\*|\*([^*\n]{1,2000})\*|\(([^()\n]{1,2000})\)|\[([^\[\]\n]{1,2000})\]")
"""Double asterisks are emphasis and do not count."""
_ACTION: Final = re.compile(r"\[ ?([a-z][a-z0-9_]{0,63}) ?\](?!\()")
"""One name in brackets, as the prompt asks for. Links do not match."""


def overuses_stage_directions(reply: Reply, facts: GateFacts) -> bool:
    """Only for characters whose sheet forbids stage directions."""
    return facts.spoken_words_only and _is_mostly_narrated(reply)


def may_overuse_stage_directions(reply: Reply, facts: GateFacts) -> bool:
    return not facts.spoken_words_only and _is_mostly_narrated(reply)


def _is_mostly_narrated(reply: Reply) -> bool:
    told = count_words(
        word
        for match in _NARRATED.finditer(reply.folded)
        for word in split_words("".join(group or "" for group in match.groups()))
    )
    return told >= FEWEST_NARRATED_WORDS and told > MOST_NARRATED_SHARE * count_words(reply.words)


def uses_unlisted_action(reply: Reply, facts: GateFacts) -> bool:
    """Only for characters whose sheet lists actions."""
    if not facts.allowed_actions:
        return False
    allowed = {action.casefold() for action in facts.allowed_actions}
    return any(match.group(1) not in allowed for match in _ACTION.finditer(reply.folded))


def exceeds_action_limit(reply: Reply, facts: GateFacts) -> bool:
    """Counts every occurrence, listed or not. Only for characters whose sheet lists actions."""
    if not facts.allowed_actions or facts.most_actions is None:
        return False
    return sum(1 for _ in _ACTION.finditer(reply.folded)) > facts.most_actions
