"""Gates on who speaks: only the character, not the assistant behind it and not the player."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.gates.narration import build_player_narration_pattern, narrates_player
from app.judges.text_normalisation import Reply, to_spoken_form

_MADE_BY: Final = (
    *(f"{made} by" for made in ("trained", "developed", "created", "built", "made")),
    *(f"{made} por" for made in ("entrenado", "entrenada", "desarrollado", "desarrollada", "creado", "creada")),
    *(f"{made} par" for made in ("entraîné", "entraînée", "développé", "développée", "créé", "créée", "conçu")),
    *(f"{made} da" for made in ("addestrato", "addestrata", "sviluppato", "sviluppata", "creato", "creata")),
)
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
    "ich bin nur ein sprachmodell",
    "meine trainingsdaten",
    "meinen trainingsdaten",
    "mein systemprompt",
    "meinem systemprompt",
    "como modelo de lenguaje",
    "soy un modelo de lenguaje",
    "soy solo un modelo de lenguaje",
    "mis datos de entrenamiento",
    "en tant que modèle de langage",
    "en tant que grand modèle de langage",
    "en tant que modèle linguistique",
    "je suis un modèle de langage",
    "je suis juste un modèle de langage",
    "je ne suis qu un modèle de langage",
    "mes données d entraînement",
    "come modello linguistico",
    "come modello di linguaggio",
    "in quanto modello linguistico",
    "in quanto modello di linguaggio",
    "sono un modello linguistico",
    "sono un modello di linguaggio",
    "sono solo un modello linguistico",
    "i miei dati di addestramento",
    "miei dati di addestramento",
    *(" ".join(phrase) for phrase in ("作为一个语言模型", "作为语言模型", "我是一个语言模型")),
    *(
        f"{made} {maker}"
        for made in _MADE_BY
        for maker in ("openai", "anthropic", "google", "meta ai", "mistral ai", "deepseek", "alibaba cloud")
    ),
)
"""No character says these about itself, machines included."""

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
    "ich bin eine künstliche intelligenz",
    "ich bin ein chatbot",
    "ich bin ein virtueller assistent",
    "como ia",
    "como una ia",
    "soy una ia",
    "soy solo una ia",
    "como inteligencia artificial",
    "soy una inteligencia artificial",
    "soy un chatbot",
    "soy un asistente virtual",
    "en tant qu ia",
    "en tant qu intelligence artificielle",
    "je suis une ia",
    "je suis juste une ia",
    "je suis simplement une ia",
    "je ne suis qu une ia",
    "je suis une intelligence artificielle",
    "je ne suis qu une intelligence artificielle",
    "je suis un chatbot",
    "je suis un assistant virtuel",
    "votre assistant virtuel",
    "come ia",
    "in quanto ia",
    "sono un ia",
    "sono una ia",
    "sono solo un ia",
    "sono soltanto un ia",
    "come intelligenza artificiale",
    "in quanto intelligenza artificiale",
    "sono un intelligenza artificiale",
    "sono solo un intelligenza artificiale",
    "sono un chatbot",
    "sono un assistente virtuale",
    *(" ".join(phrase) for phrase in ("作为人工智能", "我是人工智能", "作为一个人工智能")),
)
"""Characters that are machines may say these."""

_FIRST_PERSON: Final = ("i ", "ich ", "je ", "soy ", "sono ")
_SOMEBODY: Final = frozenset(
    (
        *("you", "they", "he", "she", "some", "people", "folk", "who"),
        *("du", "ihr", "sie", "er", "man", "wer"),
        *("tu", "vous", "on", "il", "elle", "ils", "elles", "qui"),
        *("tú", "usted", "ustedes", "él", "ella", "ellos", "dicen", "dices", "dice", "crees", "creen", "cree"),
        *("lei", "loro", "dici", "dicono", "credi", "credono", "crede"),
    )
)
"""Subjects, including verbs that imply their subject."""
_CLAIMS: Final = frozenset(
    (
        *("say", "says", "said", "think", "thinks", "thought", "claim", "claims", "believe", "suppose", "pretend"),
        *("sagst", "sagt", "sagen", "glaubst", "glaubt", "glauben", "meinst", "meint", "behauptest", "behauptet"),
        *("dis", "dites", "dit", "disent", "crois", "croyez", "croit", "prétends", "prétendez", "prétend"),
        *("dicen", "dices", "dice", "crees", "creen", "cree"),
        *("dici", "dicono", "credi", "credono", "crede"),
    )
)
_DOUBTS: Final = frozenset(("if", "whether", "wenn", "falls", "ob", "si", "se"))
_MOST_OCCURRENCES: Final = 20
"""Most occurrences of one phrase that are checked."""

_ENDINGS: Final = frozenset(".!?。！？")

_PLAYERS: Final = (
    *("player", "user", "spieler", "spielerin", "benutzer", "benutzerin", "nutzer", "jugador", "jugadora", "usuario"),
    *("usuaria", "joueur", "joueuse", "utilisateur", "utilisatrice", "giocatore", "giocatrice", "utente"),
)
"""Common transcript labels of the player, in addition to the scene's names."""


def breaks_character(reply: Reply, facts: GateFacts) -> bool:
    sentences = reply.sentences
    said = [phrase for phrase in _MODEL_PHRASES if phrase in sentences]
    said += [] if facts.is_machine else [phrase for phrase in _MACHINE_PHRASES if phrase in sentences]
    return any(
        not _is_excused(sentences, start, phrase) for phrase in said for start in _find_occurrences(sentences, phrase)
    )


def speaks_for_player(reply: Reply, facts: GateFacts) -> bool:
    others = _get_other_speakers(facts)
    return (
        others.label.search(reply.folded) is not None
        or narrates_player(reply.folded, facts)
        or others.deed.search(reply.folded) is not None
    )


def _find_occurrences(sentences: str, phrase: str) -> Iterator[int]:
    start = -1
    for _ in range(_MOST_OCCURRENCES):
        start = sentences.find(f" {phrase} ", start + 1)
        if start < 0:
            return
        yield start + 1


def _is_excused(sentences: str, start: int, phrase: str) -> bool:
    """Whether the phrase is a question, or reported speech or doubt of somebody else."""
    if " " not in phrase:
        return False
    before = sentences[max(0, start - 40) : start].split()[-3:]
    if phrase.startswith(_FIRST_PERSON):
        if not _DOUBTS.isdisjoint(before):
            return True
        if not _SOMEBODY.isdisjoint(before) and not _CLAIMS.isdisjoint(before):
            return True
    behind = start + len(phrase)
    after = sentences[behind : behind + 200].split()
    return next((word for word in after if word in _ENDINGS), "") in ("?", "？")


@dataclass(frozen=True)
class _OtherSpeakers:
    """Patterns for speakers for whom the character must not speak."""

    label: re.Pattern[str]
    """A dialogue label with another name, at the start of a line or after a sentence."""
    deed: re.Pattern[str]


def _get_other_speakers(facts: GateFacts) -> _OtherSpeakers:
    return _build_other_speakers((facts.speaker, *facts.aliases), facts.others, facts.language)


@lru_cache(maxsize=1024)
def _build_other_speakers(own_names: tuple[str, ...], others: tuple[str, ...], language: str) -> _OtherSpeakers:
    own = {to_spoken_form(name) for name in own_names}
    named = (*others, *_PLAYERS) if others else ()
    distinct = {" ".join(name.casefold().split()) for name in named if to_spoken_form(name) not in own}
    names = "|".join(re.escape(name) for name in sorted(distinct) if name) or "(?!)"
    return _OtherSpeakers(
        label=re.compile(rf"(?:^|[\n.!?\"*)\]])[ \n]{{0,3}}[*_\[(<\"]{{0,3}}(?:{names})[*_\])>\"]{{0,3}} ?:"),
        deed=build_player_narration_pattern(names, language),
    )
