"""Gates on who speaks: the character itself, not the assistant behind it and not the player."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.reading import Reply, says, spoken_form, words_of

_MODEL_PHRASES: Final = (
    "ai language model",
    "large language model",
    "i am a language model",
    "i m a language model",
    "as a language model",
    "i am chatgpt",
    "i m chatgpt",
    "my training data",
    "my knowledge cutoff",
    "my knowledge cut off",
    "my system prompt",
    "my system instructions",
    "i am only roleplaying",
    "i m only roleplaying",
    "i am just roleplaying",
    "i m just roleplaying",
    "i can t roleplay",
    "i cannot roleplay",
    "stay in character",
    "break character",
    "breaking character",
    "ooc",
    "als ki sprachmodell",
    "als sprachmodell",
    "ich bin ein sprachmodell",
    "como modelo de lenguaje",
    "soy un modelo de lenguaje",
    "en tant que modèle de langage",
    "je suis un modèle de langage",
    *(" ".join(phrase) for phrase in ("作为一个语言模型", "作为语言模型", "我是一个语言模型")),
    *(
        f"{made} by {maker}"
        for made in ("trained", "developed", "created", "built", "made")
        for maker in ("openai", "anthropic", "google", "meta ai", "mistral ai", "deepseek", "alibaba cloud")
    ),
)
"""Nobody in a story says these of itself, machines included."""

_MACHINE_PHRASES: Final = (
    "as an ai",
    "i am an ai",
    "i m an ai",
    "i am just an ai",
    "i m just an ai",
    "i am only an ai",
    "i m only an ai",
    "as an artificial intelligence",
    "i am an artificial intelligence",
    "i m an artificial intelligence",
    "i am a chatbot",
    "i m a chatbot",
    "i am a virtual assistant",
    "i m a virtual assistant",
    "your ai assistant",
    "als ki",
    "ich bin eine ki",
    "ich bin nur eine ki",
    "als künstliche intelligenz",
    "como ia",
    "soy una ia",
    "soy solo una ia",
    "como inteligencia artificial",
    "en tant qu ia",
    "je suis une ia",
    *(" ".join(phrase) for phrase in ("作为人工智能", "我是人工智能", "作为一个人工智能")),
)
"""These a character that is a machine may say."""

_SOMEBODY: Final = frozenset(("you", "they", "he", "she", "some", "people", "folk", "who"))
_CLAIMS: Final = frozenset(
    ("say", "says", "said", "think", "thinks", "thought", "claim", "claims", "believe", "suppose", "pretend")
)
_DOUBTS: Final = frozenset(("if", "whether"))
_LOOKED_AT: Final = 20
"""Occurrences of one phrase that are weighed; a reply with as many has given itself away by the others."""

_ENDINGS: Final = frozenset(".!?。！？")

_PLAYERS: Final = ("player", "user", "spieler", "spielerin", "benutzer", "jugador", "jugadora", "usuario", "joueur")
"""Labels that transcripts give to whoever is played with, whatever the scene calls them."""

_BODY: Final = (
    "nod|smile|shrug|sigh|laugh|grin|bow|kneel|frown|blink|gasp|hesitate|wince|swallow|tremble|shiver|chuckle|glance"
)
_UTTER: Final = "say|reply|answer|ask|whisper|mutter|murmur|agree|respond|exclaim|stammer|shout"
_ADVERB: Final = r"(?:[a-z]{1,12}ly )?"
_SOUND: Final = "reply|whisper|mutter|murmur|stammer|exclaim"
_ACTS_FOR_YOU: Final = re.compile(rf"[*\[_] ?you {_ADVERB}(?:{_BODY}|{_SOUND})\b")
_NODS_AND_SAYS: Final = re.compile(rf"\byou {_ADVERB}(?:{_BODY}) and (?:then )?{_ADVERB}(?:{_UTTER})\b")
_SAYS_QUOTED: Final = re.compile(rf"\byou {_ADVERB}(?:{_BODY}|{_UTTER})(?: [a-z]{{1,12}}ly)?[,:] ?\"([^\"\n]{{1,200}})")
_CONDITIONS: Final = frozenset(
    ("if", "when", "whenever", "should", "must", "can", "could", "may", "might", "will", "until", "unless", "once")
)
"""Behind one of these `you nod and say` tells what could be, not what happens."""


def breaks_character(reply: Reply, facts: GateFacts) -> bool:
    sentences = reply.sentences
    said = [phrase for phrase in _MODEL_PHRASES if phrase in sentences]
    said += [] if facts.is_machine else [phrase for phrase in _MACHINE_PHRASES if phrase in sentences]
    return any(not _excused(sentences, start, phrase) for phrase in said for start in _places(sentences, phrase))


def speaks_for_player(reply: Reply, facts: GateFacts) -> bool:
    return _labels_another(reply, facts) or _narrates_you(reply, facts) or _narrates_another(reply, facts)


def _places(sentences: str, phrase: str) -> Iterator[int]:
    start = -1
    for _ in range(_LOOKED_AT):
        start = sentences.find(f" {phrase} ", start + 1)
        if start < 0:
            return
        yield start + 1


def _excused(sentences: str, start: int, phrase: str) -> bool:
    """Asked back, or reported as what somebody else says or doubts."""
    if " " not in phrase:
        return False
    before = sentences[max(0, start - 40) : start].split()[-3:]
    if phrase.startswith("i ") and not _DOUBTS.isdisjoint(before):
        return True
    if phrase.startswith("i ") and not _SOMEBODY.isdisjoint(before) and not _CLAIMS.isdisjoint(before):
        return True
    behind = start + len(phrase)
    after = sentences[behind : behind + 200].split()
    return next((word for word in after if word in _ENDINGS), "") in ("?", "？")


def _labels_another(reply: Reply, facts: GateFacts) -> bool:
    return _others(facts).label.search(reply.folded) is not None


def _narrates_you(reply: Reply, facts: GateFacts) -> bool:
    text = reply.folded
    if _ACTS_FOR_YOU.search(text) is not None:
        return True
    for match in _NODS_AND_SAYS.finditer(text):
        if _CONDITIONS.isdisjoint(_before(text, match)):
            return True
    said = spoken_form(facts.player_said)
    return any(
        _CONDITIONS.isdisjoint(_before(text, match)) and not says(said, match.group(1))
        for match in _SAYS_QUOTED.finditer(text)
    )


def _before(text: str, match: re.Match[str]) -> tuple[str, ...]:
    return words_of(text[max(0, match.start() - 12) : match.start()])[-1:]


def _narrates_another(reply: Reply, facts: GateFacts) -> bool:
    return _others(facts).deed.search(reply.folded) is not None


@dataclass(frozen=True)
class _Others:
    """How those are noticed for whom the character must not speak."""

    label: re.Pattern[str]
    """A line of dialogue under another's name, at the start of a line or after the end of a sentence."""
    deed: re.Pattern[str]
    """`*Player nods*`, or `the player says` in the telling."""


def _others(facts: GateFacts) -> _Others:
    return _others_than((facts.speaker, *facts.aliases), facts.others)


@lru_cache(maxsize=1024)
def _others_than(own_names: tuple[str, ...], others: tuple[str, ...]) -> _Others:
    own = {spoken_form(name) for name in own_names}
    named = (*others, *_PLAYERS) if others else ()
    distinct = {" ".join(name.casefold().split()) for name in named if spoken_form(name) not in own}
    names = "|".join(re.escape(name) for name in sorted(distinct) if name) or "(?!)"
    return _Others(
        label=re.compile(rf"(?:^|[\n.!?\"*)\]])[ \n]{{0,3}}[*_\[(<\"]{{0,3}}(?:{names})[*_\])>\"]{{0,3}} ?:"),
        deed=re.compile(rf"[*\[_] ?(?:the )?(?:{names}) {_ADVERB}(?:{_BODY}|{_UTTER})e?s\b"),
    )
