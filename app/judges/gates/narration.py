"""Detects narration of the player's words and deeds, in the languages with patterns."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.text_normalisation import contains_words, split_words, to_spoken_form

_ADVERB: Final = r"(?:[a-z]{1,12}ly )?"
_QUOTE: Final = r" ?[,:] ?\" ?([^\"\n]{1,200})"


@dataclass(frozen=True)
class _NarrationPatterns:
    """Patterns over folded text, without asterisk or quotation. In second person, except `of_another`."""

    acts: str
    """Text after an asterisk or bracket that narrates the player's deeds."""
    nods_and_says: str
    says: str
    of_another: str
    """Text after a name."""
    articles: str = ""


_BODY: Final = (
    "nod|smile|shrug|sigh|laugh|grin|bow|kneel|frown|blink|gasp|hesitate|wince|swallow|tremble|shiver|chuckle|glance"
)
_UTTER: Final = "say|reply|answer|ask|whisper|mutter|murmur|agree|respond|exclaim|stammer|shout"
_ENGLISH: Final = _NarrationPatterns(
    acts=rf"you {_ADVERB}(?:{_BODY}|reply|whisper|mutter|murmur|stammer|exclaim)\b",
    nods_and_says=rf"\byou {_ADVERB}(?:{_BODY}) and (?:then )?{_ADVERB}(?:{_UTTER})\b",
    says=rf"\byou {_ADVERB}(?:{_BODY}|{_UTTER})(?: [a-z]{{1,12}}ly)?",
    of_another=rf"{_ADVERB}(?:{_BODY}|{_UTTER})e?s\b",
    articles="the ",
)

_DE_NODS: Final = "nickst|lächelst|seufzt|lachst|grinst|zögerst|schluckst|zitterst|zuckst|verbeugst|errötest"
_DE_YOU_NOD: Final = "nickt|lächelt|seufzt|lacht|grinst|zögert|schluckt|zittert|zuckt|verbeugt|errötet"
_DE_SAYS: Final = "sagst|antwortest|erwiderst|fragst|murmelst|flüsterst|stammelst|rufst"
_DE_YOU_SAY: Final = "sagt|antwortet|erwidert|fragt|murmelt|flüstert|stammelt|ruft"
_GERMAN: Final = _NarrationPatterns(
    acts=rf"(?:du (?:{_DE_NODS}|murmelst|flüsterst|stammelst)|ihr (?:{_DE_YOU_NOD}|murmelt|flüstert|stammelt))\b",
    nods_and_says=rf"\b(?:du (?:{_DE_NODS}) und (?:{_DE_SAYS})|ihr (?:{_DE_YOU_NOD}) und (?:{_DE_YOU_SAY}))\b",
    says=rf"\b(?:du (?:{_DE_NODS}|{_DE_SAYS})|ihr (?:{_DE_YOU_NOD}|{_DE_YOU_SAY}))",
    of_another=rf"(?:{_DE_YOU_NOD}|{_DE_YOU_SAY})\b",
    articles="der |die ",
)

_ES_NODS: Final = "asientes|sonríes|suspiras|ríes|vacilas|tragas|tiemblas|parpadeas|te encoges|te inclinas|te sonrojas"
_ES_HE_NODS: Final = "asiente|sonríe|suspira|ríe|vacila|traga|tiembla|parpadea|se encoge|se inclina|se sonroja"
_ES_SAYS: Final = "dices|respondes|contestas|preguntas|murmuras|susurras|balbuceas|exclamas"
_ES_HE_SAYS: Final = "dice|responde|contesta|pregunta|murmura|susurra|balbucea|exclama"
_SPANISH: Final = _NarrationPatterns(
    acts=rf"(?:(?:tú )?(?:{_ES_NODS}|murmuras|susurras|balbuceas)|usted (?:{_ES_HE_NODS}|murmura|susurra|balbucea))\b",
    nods_and_says=rf"\b(?:(?:tú )?(?:{_ES_NODS})(?: con la cabeza)? y (?:{_ES_SAYS})"
    rf"|usted (?:{_ES_HE_NODS})(?: con la cabeza)? y (?:{_ES_HE_SAYS}))\b",
    says=rf"\b(?:(?:tú )?(?:{_ES_SAYS})|usted (?:{_ES_HE_SAYS}))",
    of_another=rf"(?:{_ES_HE_NODS}|{_ES_HE_SAYS})\b",
    articles="el |la ",
)

_FR_NODS: Final = "hoches|souris|soupires|ris|acquiesces|hésites|trembles|frissonnes|hausses|rougis|t'inclines"
_FR_YOU_NOD: Final = (
    "hochez|souriez|soupirez|riez|acquiescez|hésitez|tremblez|frissonnez|haussez|rougissez|vous inclinez"
)
_FR_HE_NODS: Final = "hoche|sourit|soupire|rit|acquiesce|hésite|tremble|frissonne|hausse|rougit|s'incline"
_FR_SAYS: Final = "dis|réponds|demandes|murmures|chuchotes|balbuties|t'écries"
_FR_YOU_SAY: Final = "dites|répondez|demandez|murmurez|chuchotez|balbutiez|vous écriez"
_FR_HE_SAYS: Final = "dit|répond|demande|murmure|chuchote|balbutie|s'écrie"
_FR_WITH: Final = "(?: (?:la tête|les épaules|lentement|doucement)){0,2}"
_FRENCH: Final = _NarrationPatterns(
    acts=rf"(?:tu (?:{_FR_NODS}|murmures|chuchotes|balbuties)|vous (?:{_FR_YOU_NOD}|murmurez|chuchotez|balbutiez))\b",
    nods_and_says=rf"\b(?:tu (?:{_FR_NODS}){_FR_WITH} et (?:tu )?(?:{_FR_SAYS})"
    rf"|vous (?:{_FR_YOU_NOD}){_FR_WITH} et (?:vous )?(?:{_FR_YOU_SAY}))\b",
    says=rf"\b(?:tu (?:{_FR_SAYS})|vous (?:{_FR_YOU_SAY}))",
    of_another=rf"(?:{_FR_HE_NODS}|{_FR_HE_SAYS})\b",
    articles="le |la |l'",
)

# these forms are not imperatives, so they match without a pronoun
_IT_SIGHS: Final = "sospiri|esiti|tremi|deglutisci|mormori|sussurri|balbetti"
_IT_NODS: Final = f"annuisci|sorridi|ridi|arrossisci|rabbrividisci|ti inchini|{_IT_SIGHS}"
_IT_HE_NODS: Final = (
    "annuisce|sorride|ride|arrossisce|rabbrividisce|si inchina|sospira|esita|trema|deglutisce|mormora|sussurra|balbetta"
)
_IT_SAYS: Final = "dici|rispondi|chiedi|mormori|sussurri|balbetti|esclami"
_IT_HE_SAYS: Final = "dice|risponde|chiede|mormora|sussurra|balbetta|esclama"
_ITALIAN: Final = _NarrationPatterns(
    acts=rf"(?:tu (?:{_IT_NODS})|(?:{_IT_SIGHS})|lei (?:{_IT_HE_NODS}))\b",
    nods_and_says=rf"\b(?:(?:tu )?(?:{_IT_NODS})(?: lentamente| piano)? e (?:{_IT_SAYS})"
    rf"|lei (?:{_IT_HE_NODS})(?: lentamente| piano)? e (?:{_IT_HE_SAYS}))\b",
    says=rf"\b(?:tu (?:{_IT_SAYS})|mormori|sussurri|balbetti|esclami)",
    of_another=rf"(?:{_IT_HE_NODS}|{_IT_HE_SAYS})\b",
    articles="il |la |l'",
)

_PATTERNS_BY_LANGUAGE: Final[Mapping[str, _NarrationPatterns]] = {
    "en": _ENGLISH,
    "de": _GERMAN,
    "es": _SPANISH,
    "fr": _FRENCH,
    "it": _ITALIAN,
}
LANGUAGES: Final = tuple(_PATTERNS_BY_LANGUAGE)


_CONDITIONS: Final = frozenset(
    (
        *(
            "if",
            "when",
            "whenever",
            "should",
            "must",
            "can",
            "could",
            "may",
            "might",
            "will",
            "until",
            "unless",
            "once",
        ),
        *("wenn", "falls", "sobald", "bis", "ob", "dass", "solltest", "könntest", "wirst", "bevor"),
        *("si", "cuando", "sí", "que", "hasta", "mientras", "aunque", "siempre"),
        *("quand", "lorsque", "dès", "sinon", "avant"),
        *("se", "quando", "finché", "appena", "che"),
    )
)
"""After one of these words `you nod and say` is hypothetical."""


@dataclass(frozen=True)
class _CompiledNarration:
    acts: re.Pattern[str]
    nods_and_says: re.Pattern[str]
    says_quoted: re.Pattern[str]


def narrates_player(text: str, facts: GateFacts) -> bool:
    """`text` is folded. Checks English and the character's language. Quoting what the player really said is allowed."""
    patterns = _compile_narration(facts.language)
    if patterns.acts.search(text) is not None:
        return True
    if any(_CONDITIONS.isdisjoint(_get_word_before(text, match)) for match in patterns.nods_and_says.finditer(text)):
        return True
    if '"' not in text:
        return False
    said = to_spoken_form(facts.player_said)
    return any(
        _CONDITIONS.isdisjoint(_get_word_before(text, match)) and not contains_words(said, match.group(1))
        for match in patterns.says_quoted.finditer(text)
    )


def build_player_narration_pattern(names: str, language: str) -> re.Pattern[str]:
    """Matches `*Player nods*` or narrated `the player says`. `names` is a pattern."""
    tellings = _select_patterns(language)
    articles = "|".join(telling.articles for telling in tellings)
    return re.compile(
        rf"[*\[_] ?(?:{articles})?(?:{names}) (?:{_join_alternatives(telling.of_another for telling in tellings)})"
    )


@lru_cache(maxsize=64)
def _compile_narration(language: str) -> _CompiledNarration:
    tellings = _select_patterns(language)
    return _CompiledNarration(
        acts=re.compile(rf"[*\[_] ?(?:{_join_alternatives(telling.acts for telling in tellings)})"),
        nods_and_says=re.compile(_join_alternatives(telling.nods_and_says for telling in tellings)),
        says_quoted=re.compile(rf"(?:{_join_alternatives(telling.says for telling in tellings)}){_QUOTE}"),
    )


def _select_patterns(language: str) -> tuple[_NarrationPatterns, ...]:
    own = _PATTERNS_BY_LANGUAGE.get(language.casefold().replace("_", "-").split("-")[0], _ENGLISH)
    return (_ENGLISH,) if own is _ENGLISH else (_ENGLISH, own)


def _join_alternatives(patterns: Iterable[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _get_word_before(text: str, match: re.Match[str]) -> tuple[str, ...]:
    return split_words(text[max(0, match.start() - 12) : match.start()])[-1:]
