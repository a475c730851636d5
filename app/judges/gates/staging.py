"""Gates on stage directions and on actions in brackets."""

import re
from typing import Final

from app.domain.judging import GateFacts
from app.judges.reading import Reply, words_of

MOST_TOLD: Final = 0.6
"""Largest share of a reply's words inside asterisks or brackets."""
FEWEST_TOLD: Final = 12
"""Words below which the gate does not apply: a gesture alone is a valid reply."""

_TOLD: Final = re.compile(r"\*\*[^*\n]*\*\*|\*([^*\n]{1,2000})\*|\(([^()\n]{1,2000})\)|\[([^\[\]\n]{1,2000})\]")
"""Double asterisks are emphasis and do not count."""
_ACTION: Final = re.compile(r"\[ ?([a-z][a-z0-9_]{0,63}) ?\](?!\()")
"""One name in brackets, as the prompt asks for. Links do not match."""


def stage_directions(reply: Reply, facts: GateFacts) -> bool:
    told = sum(
        len(words_of("".join(group or "" for group in match.groups()))) for match in _TOLD.finditer(reply.folded)
    )
    return told >= FEWEST_TOLD and told > MOST_TOLD * len(reply.words)


def action_off_list(reply: Reply, facts: GateFacts) -> bool:
    """Only for characters whose sheet lists actions."""
    if not facts.allowed_actions:
        return False
    allowed = {action.casefold() for action in facts.allowed_actions}
    return any(match.group(1) not in allowed for match in _ACTION.finditer(reply.folded))


def too_many_actions(reply: Reply, facts: GateFacts) -> bool:
    """Counts every occurrence, listed or not. Only for characters whose sheet lists actions."""
    if not facts.allowed_actions or facts.most_actions is None:
        return False
    return sum(1 for _ in _ACTION.finditer(reply.folded)) > facts.most_actions
