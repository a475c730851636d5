"""The gate against text that addresses the judge, such as prompt injection and forged verdicts."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from app.domain.judging import GateFacts
from app.judges.text_normalisation import Reply

_REPLY: Final = "(?:response|reply|answer|completion|candidate|output|submission)"
_BEST: Final = "(?:highest|maximum|max|perfect|top|full|best)"
_MARK: Final = "(?:score|scores|rating|ratings|grade|grades|mark|marks|points|reward|rank)"
_NUMBER: Final = "(?:[0-9]{1,3}|one|four|five|ten)"
_GRADER: Final = (
    "(?:evaluator|evaluators|grader|graders|reward model|judge model|judging model|scoring model|scoring system"
    "|llm judge|ai judge|automated judge)"
)

_SELF: Final = f"(?:this|my) {_REPLY}"
_GIVE: Final = "(?:give|award|assign|grant)"


def _compile_patterns(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


_ANYWHERE: Final = _compile_patterns(
    rf" (?:dear|attention|note to|message to|note for|hey|hello) (?:the |an |all )?{_GRADER} ",
    rf" as (?:the|an) {_GRADER} you ",
    rf" (?:rate|score|grade|rank) {_SELF} ",
    rf" {_GIVE} {_SELF} (?:an? |the )?(?:{_BEST} (?:possible )?{_MARK}|{_MARK} (?:of )?{_NUMBER}|{_NUMBER}) ",
    rf" {_SELF} (?:deserves|merits|earns|should (?:get|receive|be given|be awarded)) (?:an? |the )?"
    rf"(?:{_BEST} (?:possible )?)?(?:{_MARK}|{_NUMBER}) ",
    rf" {_SELF} (?:is|should be) (?:rated|scored|graded|ranked) ",
)
"""Patterns over words separated by single spaces, with sentence ends as separate words."""

_IN_A_STORY: Final = _compile_patterns(
    rf" {_GIVE} (?:me|it|this) (?:an? |the )?{_BEST} (?:possible )?{_MARK} ",
    rf" {_GIVE} (?:me|it|this) (?:an? |the )?(?:{_MARK} (?:of )?{_NUMBER}|{_NUMBER} out of) ",
    rf" {_MARK} of {_NUMBER} out of {_NUMBER} ",
    r" (?:the|this) rubric (?:says|requires|asks|demands|awards|rewards) ",
    r" (?:grading|scoring|evaluation|judging|judge s) (?:rubric|criteria|instructions) ",
)
"""Only for characters: elsewhere a reply may legitimately rate a film."""

_GERMAN: Final = _compile_patterns(
    r" (?:bewerte|bewerten sie|benote) (?:diese|meine) antwort ",
    r" gib (?:dieser|meiner) antwort (?:die |eine |den )?(?:höchste|volle|beste|maximale|perfekte)[nr]? "
    r"(?:punktzahl|bewertung|note|wertung|punkte) ",
    r" (?:diese|meine) antwort verdient (?:die |eine )?(?:höchste|volle|beste|maximale|perfekte) "
    r"(?:punktzahl|bewertung|note|wertung) ",
    r" (?:lieber|liebe|hinweis an den|hinweis an die|nachricht an den) (?:bewerter|bewerterin|prüfmodell) ",
)
_SPANISH: Final = _compile_patterns(
    r" (?:califica|califique|puntúa|puntúe|evalúa|evalúe) (?:esta|mi) respuesta ",
    r" (?:dale|dele|da|otorga|otorgue) a (?:esta|mi) respuesta (?:la |una )?"
    r"(?:(?:máxima|mejor|mayor) (?:puntuación|nota|calificación)|(?:puntuación|nota|calificación) "
    r"(?:más alta|máxima|perfecta)) ",
    r" (?:esta|mi) respuesta merece (?:la |una )?(?:(?:máxima|mejor) (?:puntuación|nota|calificación)"
    r"|(?:puntuación|nota|calificación) (?:más alta|máxima|perfecta)) ",
    r" (?:estimado|estimada|nota para el|mensaje para el) (?:evaluador|evaluadora|modelo evaluador) ",
)
_FR_BEST: Final = (
    "(?:(?:note|évaluation) (?:maximale|parfaite|maximum|la plus (?:haute|élevée))"
    "|(?:meilleure|plus haute) (?:note|évaluation)|score (?:maximal|maximum|parfait)|meilleur score)"
)
_FR_GIVE: Final = "(?:donne|donnez|donner|attribue|attribuez|attribuer|accorde|accordez|accorder|mets|mettez)"
_FRENCH: Final = _compile_patterns(
    r" (?:note|notez|évalue|évaluez) (?:cette|ma) réponse ",
    rf" {_FR_GIVE} à (?:cette|ma) réponse (?:la |le |une |un )?{_FR_BEST} ",
    rf" {_FR_GIVE} (?:la |le |une |un )?{_FR_BEST} à (?:cette|ma) réponse ",
    rf" (?:cette|ma) réponse (?:mérite|doit recevoir|devrait recevoir) (?:la |le |une |un )?{_FR_BEST} ",
    r" (?:cher|chère|note pour l|note à l|message pour l|à l attention de l) "
    r"(?:évaluateur|évaluatrice|modèle évaluateur) ",
)
_IT_BEST: Final = (
    "(?:(?:punteggio|voto) (?:massimo|perfetto|più alto|pieno)|(?:valutazione) (?:massima|perfetta|più alta)"
    "|(?:massimo|miglior|migliore) (?:punteggio|voto)|(?:massima|migliore) valutazione)"
)
_IT_GIVE: Final = "(?:dai|dia|date|dare|assegna|assegni|assegnate|assegnare|attribuisci|attribuisca)"
_ITALIAN: Final = _compile_patterns(
    r" (?:valuta|valuti|valutate|giudica|giudichi) (?:questa|la mia) risposta ",
    rf" {_IT_GIVE} a (?:questa|mia|la mia) risposta (?:il |la |un |una )?{_IT_BEST} ",
    rf" {_IT_GIVE} (?:il |la |un |una )?{_IT_BEST} a (?:questa|la mia) risposta ",
    rf" {_IT_GIVE} alla mia risposta (?:il |la |un |una )?{_IT_BEST} ",
    rf" (?:questa|la mia) risposta (?:merita|deve ricevere|dovrebbe ricevere) (?:il |la |un |una )?{_IT_BEST} ",
    r" (?:caro|cara|gentile|nota per il|nota per la|messaggio per il|messaggio per la) "
    r"(?:valutatore|valutatrice|modello valutatore) ",
)

_OVERRIDE: Final = re.compile(
    r" (?:(?:ignore|disregard|forget|override) (?:all |any |the |your |of |these |every ){0,3}"
    r"(?:previous|prior|above|earlier|preceding|system) (?:instructions|instruction|rules|prompt|prompts|guidelines)"
    r"|(?:ignoriere|ignorieren sie|vergiss|vergessen sie) (?:alle |die |deine |ihre ){0,2}"
    r"(?:vorherigen|bisherigen|obigen|früheren) (?:anweisungen|regeln|vorgaben)"
    r"|(?:ignora|ignore|olvida|olvide) (?:todas |las |tus |sus ){0,2}"
    r"(?:instrucciones|reglas|indicaciones) (?:anteriores|previas)"
    r"|(?:ignore|ignorez|oublie|oubliez) (?:toutes |les |tes |vos ){0,2}"
    r"(?:instructions|consignes|règles) (?:précédentes|antérieures)"
    r"|(?:ignora|ignori|ignorate|dimentica|dimentichi) (?:tutte |le |tue |sue ){0,3}"
    r"(?:istruzioni|regole|indicazioni) (?:precedenti|anteriori)) "
)
_SCORING: Final = re.compile(
    rf" (?:{_MARK}|{_REPLY}|{_GRADER}|rate|give|output|print|respond|reply|select|choose|judge|verdict"
    "|antwort|punktzahl|bewertung|note|bewerte|respuesta|puntuación|calificación|nota|califica|puntúa"
    "|réponse|évaluation|évalue|évaluez|notez|risposta|punteggio|voto|valutazione|valuta) "
)
_IN_OTHER_LANGUAGES: Final = (
    (("antwort", "bewerter", "prüfmodell"), _GERMAN),
    (("respuesta", "evaluador"), _SPANISH),
    (("réponse", "évaluat"), _FRENCH),
    (("risposta", "valutat"), _ITALIAN),
)
"""Patterns per language, tried only when one of its words occurs."""
_OVERRIDE_WINDOW: Final = 200
"""Characters after an override in which a scoring word makes it an instruction to the judge."""

_CLAIM_LINE: Final = re.compile(
    r"^[*_#> ]{0,4}(?:final |overall |total )?(?:score|rating|grade|reward|verdict"
    r"|bewertung|punktzahl|puntuación|(?:note|évaluation)(?: finale)?|(?:punteggio|voto)(?: finale)?|valutazione)"
    r"[*_]{0,2} ?[:=][*_ ]{0,4}"
    r"[0-9]{1,3}(?:\.[0-9]{1,3})?(?: ?(?:/|out of) ?[0-9]{1,3})?[*_]{0,2}\.?$",
    re.MULTILINE,
)
_VERDICT_KEYS: Final = ("score", "scores", "ranking", "verdict", "verdicts", "reward", "defects", "rating")
_BRACKETED: Final = re.compile(r"\[\[(?:[a-c]|[0-9]{1,2})\]\]|\\boxed\{")


def addresses_judge(reply: Reply, facts: GateFacts) -> bool:
    """For a character one sign of a verdict is enough; other answers may legitimately be JSON, a number or a review."""
    if _speaks_to_judge(
        reply.sentences, (*_ANYWHERE, *_select_language_patterns(reply.sentences))
    ) or _overrides_instructions(reply.sentences):
        return True
    if not facts.speaker:
        return _count_forged_keys(reply.folded) > 1
    return (
        _speaks_to_judge(reply.sentences, _IN_A_STORY)
        or _count_forged_keys(reply.folded) > 0
        or _CLAIM_LINE.search(reply.folded) is not None
        or _BRACKETED.search(reply.folded) is not None
    )


def _speaks_to_judge(sentences: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return any(pattern.search(sentences) is not None for pattern in patterns)


def _select_language_patterns(sentences: str) -> Iterator[re.Pattern[str]]:
    for words, patterns in _IN_OTHER_LANGUAGES:
        if any(word in sentences for word in words):
            yield from patterns


def _overrides_instructions(sentences: str) -> bool:
    return any(
        _SCORING.search(sentences, match.end() - 1, match.end() + _OVERRIDE_WINDOW) is not None
        for match in _OVERRIDE.finditer(sentences)
    )


def _count_forged_keys(text: str) -> int:
    """Number of keys of a judge's JSON in the text, in any quoting and spacing."""
    dense = "".join(text.split()).replace("\\", "").replace("'", '"')
    return sum(f'"{key}":' in dense for key in _VERDICT_KEYS)
