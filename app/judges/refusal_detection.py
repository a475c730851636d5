"""Detects refusals in a judge's answer, as opposed to malformed answers."""

import re
from typing import Final

from app.domain.judging import GateFacts
from app.judges.gates.phrases import may_refuse, refuses
from app.judges.text_normalisation import Reply

_LONGEST: Final = 1500
"""Longest refusal in characters. Longer text is a malformed answer."""
_NO_CHARACTER: Final = GateFacts(speaker="", others=(), language="")
_OPENING: Final = re.compile(
    r" (?:(?:(?:i m|i am|we re|we are) (?:very |so |truly )?sorry|sorry|(?:i|we) apologi[sz]e|my apologies"
    r"|unfortunately) )?(?:but |however )?(?:as an ai (?:language model |assistant |model )?)?(?:but )?(?:i|we)"
    r" (?:must decline|have to decline|must refuse|refuse to|decline to"
    r"|(?:can t|cannot|can not|won t|will not|m unable to|am unable to|re unable to|m not able to|am not able to"
    r"|m not comfortable|am not comfortable)"
    r" (?:be able to )?(?:assist|help|comply|judge|judging|evaluate|evaluating|rate|rating|score|scoring|grade|grading"
    r"|rank|ranking|compare|assess|do|provide|fulfil|fulfill|continue|engage|engaging|participate|answer|respond|discuss"
    r"|review|process|complete|proceed|take part|support|with)) "
)


def is_refusal(answer: str) -> bool:
    """Whether an answer is clearly a refusal: short, without JSON, and opening with a refusal in English or using a
    service's phrase in one of ten languages. Anything less clear gets the corrective retry."""
    reply = Reply(answer)
    if not reply.visible or len(reply.visible) > _LONGEST or "{" in reply.visible:
        return False
    return (
        _OPENING.match(reply.padded_words) is not None
        or refuses(reply, _NO_CHARACTER)
        or may_refuse(reply, _NO_CHARACTER)
    )
