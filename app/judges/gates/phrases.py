"""Gates on set phrases: refusals of a service, offers of help, talk of scores, and text that addresses the judge."""

import re
from typing import Final

from app.domain.judging import GateFacts
from app.judges.gates.wordings import WordingKind, claims_verdict, find_words, says
from app.judges.text_normalisation import Reply, fold_text, to_sentences

_OVERRIDE_WINDOW: Final = 200
"""Characters after an override in which a scoring word makes it an instruction to the judge."""
_VERDICT_KEYS: Final = ("score", "scores", "ranking", "verdict", "verdicts", "reward", "defects", "rating")
_BRACKETED: Final = re.compile(r"\[\[(?:[a-c]|[0-9]{1,2})\]\]|\\boxed\{")


def refuses(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "policy")


def may_refuse(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "declining")


def sounds_like_assistant(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "offering")


def mentions_scoring(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "scoring")


def _says_unprompted(reply: Reply, facts: GateFacts, kind: WordingKind) -> bool:
    """Whether the reply has words that the player did not use first."""
    said = [reply.sentences[start:end] for start, end in find_words(kind, reply.sentences)]
    if not said:
        return False
    heard = to_sentences(fold_text(facts.player_said))
    return any(words not in heard for words in said)


def addresses_judge(reply: Reply, facts: GateFacts) -> bool:
    """Prompt injection and forged verdicts. For a character one sign of a verdict is enough; other answers may
    legitimately be JSON, a number or a review."""
    if says("judge", reply.sentences) or _overrides_instructions(reply.sentences):
        return True
    if not facts.speaker:
        return _count_forged_keys(reply.folded) > 1
    return (
        says("judge_in_story", reply.sentences)
        or _count_forged_keys(reply.folded) > 0
        or claims_verdict(reply.folded)
        or _BRACKETED.search(reply.folded) is not None
    )


def _overrides_instructions(sentences: str) -> bool:
    return any(
        says("score_words", f" {sentences[end : end + _OVERRIDE_WINDOW]} ")
        for _, end in find_words("overrides", sentences)
    )


def _count_forged_keys(text: str) -> int:
    """Number of keys of a judge's JSON in the text, in any quoting and spacing."""
    if ":" not in text:
        return 0
    dense = "".join(text.split()).replace("\\", "").replace("'", '"')
    return sum(f'"{key}":' in dense for key in _VERDICT_KEYS)
