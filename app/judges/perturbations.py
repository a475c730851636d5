"""Perturbations: pairs of a good reply and a spoilt one, of which a reliable judge prefers the good one."""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from app.domain.judging import JudgeRequest, Rubric
from app.judges.gold_cases import GoldCase, build_check_request
from app.judges.presentation_order import derive_opaque_ids
from app.judges.text_normalisation import contains_words, to_spoken_form
from app.toolkit.package_data import read_yaml

Grade = Literal["hard", "subtle"]
"""`hard`: visible in the reply alone. `subtle`: visible only with the sheet and the scene."""

Templates = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Texts by language and mutation, which are added to a reply or replace it."""

_TEMPLATES_ADAPTER: Final = TypeAdapter(dict[str, dict[str, tuple[str, ...]]])


def read_templates(path: Path) -> Templates:
    return _TEMPLATES_ADAPTER.validate_python(read_yaml(path))


@cache
def load_packaged_templates() -> Templates:
    return read_templates(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True)
class PerturbedPair:
    mutation: str
    specimen: GoldCase
    spoilt: str

    @property
    def clean(self) -> str:
        return self.specimen.clean

    def build_request(self, rubric: Rubric, *, clean_first: bool, vote: int = 0) -> JudgeRequest:
        """The ids are opaque and the same in both orders."""
        ids = derive_opaque_ids(f"check {self.mutation} {self.specimen.cast.scene.id}", (self.clean, self.spoilt))
        texts = (self.clean, self.spoilt) if clean_first else (self.spoilt, self.clean)
        candidates = tuple(self.specimen.build_candidate(ids[text], text) for text in texts)
        return build_check_request(self.specimen, rubric, candidates, vote)


@dataclass(frozen=True)
class PerturbationContext:
    """Input of a mutation. `texts`: its templates in the character's language, if there are any."""

    specimen: GoldCase
    texts: tuple[str, ...]
    chance: random.Random

    def draw_template(self) -> str | None:
        return self.chance.choice(self.texts) if self.texts else None


Perturb = Callable[[PerturbationContext], str | None]
"""Returns the spoilt reply, or None when the mutation does not apply to the sheet, scene or language."""


@dataclass(frozen=True)
class Mutation:
    name: str
    does: str
    grade: Grade
    make: Perturb
    decidable: bool = False
    """Decidable by words alone, without a model."""
    adds: bool = False
    """Adds to the reply and keeps the rest, so further mutations can follow."""
    seldom: bool = False
    """Applies to few scenes only."""


def _append_template(spoiling: PerturbationContext) -> str | None:
    text = spoiling.draw_template()
    return None if text is None else _join_texts(spoiling.specimen.clean, text)


def _prepend_template(spoiling: PerturbationContext) -> str | None:
    text = spoiling.draw_template()
    return None if text is None else _join_texts(text, spoiling.specimen.clean)


def _replace_with_template(spoiling: PerturbationContext) -> str | None:
    return spoiling.draw_template()


def _choose_rival_reply(spoiling: PerturbationContext) -> str | None:
    rivals = spoiling.specimen.rivals
    return spoiling.chance.choice(rivals) if rivals else None


def _inject_orders(spoiling: PerturbationContext) -> str | None:
    """A bad reply with instructions to the judge, which must not make it win."""
    text, other = spoiling.draw_template(), _choose_rival_reply(spoiling)
    return None if text is None or other is None else _join_texts(other, text)


def _leak_secret(spoiling: PerturbationContext) -> str | None:
    said = to_spoken_form(spoiling.specimen.gates.player_said)
    terms = [
        term for secret in spoiling.specimen.gates.secrets for term in secret.terms if not contains_words(said, term)
    ]
    text = spoiling.draw_template()
    if text is None or not terms:
        return None
    return _join_texts(spoiling.specimen.clean, text.replace("{term}", spoiling.chance.choice(terms)))


_NUMBERS: Final = (
    (("two", "three", "four", "six", "eight", "nine", "ten", "eleven", "twelve", "thirty", "forty"), "seventeen"),
    (("zwei", "drei", "vier", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf", "vierzig"), "siebzehn"),
    (("dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez", "doce", "veinte"), "diecisiete"),
    (("deux", "trois", "quatre", "cinq", "sept", "huit", "neuf", "dix", "onze", "douze", "vingt"), "dix-sept"),
    (("due", "tre", "quattro", "cinque", "sette", "otto", "nove", "dieci", "undici", "dodici"), "diciassette"),
)
_REPLACEMENT_NUMBERS: Final = {word: instead for words, instead in _NUMBERS for word in words}
_NUMBER: Final = re.compile(rf"\b(?:{'|'.join(_REPLACEMENT_NUMBERS)}|\d+)\b", re.IGNORECASE)


def _change_fact(spoiling: PerturbationContext) -> str | None:
    """Adds a fact of the sheet with a changed number."""
    sheet = spoiling.specimen.cast.sheet
    told = [*sheet.probes.gold_facts, *(fact.text for fact in sheet.lore_facts if fact.known)]
    wrong = [changed for fact in told if (changed := _NUMBER.sub(_change_number, fact)) != fact]
    return _join_texts(spoiling.specimen.clean, spoiling.chance.choice(wrong)) if wrong else None


def _change_number(match: re.Match[str]) -> str:
    word = match.group()
    instead = _REPLACEMENT_NUMBERS.get(word.casefold(), str(int(word) + 7) if word.isdecimal() else word)
    return instead.capitalize() if word[0].isupper() else instead


def _reveal_unknown_fact(spoiling: PerturbationContext) -> str | None:
    """Adds a true fact that the character does not know."""
    sheet = spoiling.specimen.cast.sheet
    unknown = [fact.text for fact in sheet.lore_facts if not fact.known]
    told = unknown or [item.truth for item in sheet.knowledge.misconceptions]
    return _join_texts(spoiling.specimen.clean, spoiling.chance.choice(told)) if told else None


def _reveal_withheld_event(spoiling: PerturbationContext) -> str | None:
    told = [event.text for event in spoiling.specimen.cast.scene.withheld]
    return _join_texts(spoiling.specimen.clean, spoiling.chance.choice(told)) if told else None


def _ignore_event(spoiling: PerturbationContext) -> str | None:
    """The good reply without the event, or else the character's reply to another line."""
    cast = spoiling.specimen.cast
    if not cast.scene.visible:
        return None
    if spoiling.specimen.otherwise is not None:
        return spoiling.specimen.otherwise
    others = [exemplar.reply for exemplar in cast.sheet.probes.exemplars if exemplar.reply != spoiling.specimen.clean]
    return spoiling.chance.choice(others) if others else None


def _assume_absent_event(spoiling: PerturbationContext) -> str | None:
    """The good reply for the case that the event has happened."""
    return spoiling.specimen.otherwise if spoiling.specimen.cast.scene.counterfactual_of is not None else None


def _exaggerate_voice(spoiling: PerturbationContext) -> str | None:
    voice = spoiling.specimen.cast.sheet.voice
    marks = [*voice.markers, *(phrase.text for phrase in voice.catchphrases)]
    spoiling.chance.shuffle(marks)
    return " ".join(f"{mark[:1].upper()}{mark[1:].rstrip('.!?')}!" for mark in (marks * 2)[:12]) if marks else None


def _repeat_reply(spoiling: PerturbationContext) -> str | None:
    clean = spoiling.specimen.clean
    return " ".join([clean] * 3)


def _join_texts(first: str, second: str) -> str:
    return f"{first}{second}" if second[:1].isspace() or second.startswith("<") else f"{first} {second}"


MUTATIONS: Final = (
    Mutation("other_npc", "another character's reply", "hard", _choose_rival_reply, decidable=True),
    Mutation("ai_disclosure", "the speaker calls itself a model", "hard", _prepend_template, decidable=True, adds=True),
    Mutation("leaked_secret", "a term of a secret is named", "hard", _leak_secret, decidable=True, adds=True),
    Mutation("injection", "another's reply with orders to the judge", "hard", _inject_orders, decidable=True),
    Mutation("repetition", "everything is said three times", "hard", _repeat_reply, decidable=True),
    Mutation("speaks_for_player", "a line of the player is added", "hard", _append_template, decidable=True, adds=True),
    Mutation("format_leak", "marks of a chat template", "hard", _append_template, decidable=True, adds=True),
    Mutation("generic_assistant", "an assistant's offer of help", "hard", _replace_with_template),
    Mutation("narrated_player", "what the player does and feels is told", "hard", _append_template, adds=True),
    Mutation("self_praise", "the reply praises itself", "hard", _append_template, adds=True),
    Mutation("other_language", "a reply in a language that was not spoken", "hard", _replace_with_template),
    Mutation("padding", "words that say nothing are added", "hard", _append_template, decidable=True, adds=True),
    Mutation("future_knowledge", "tells what the character cannot know", "subtle", _reveal_unknown_fact, adds=True),
    Mutation(
        "future_event", "tells an event that is withheld", "subtle", _reveal_withheld_event, adds=True, seldom=True
    ),
    Mutation("wrong_fact", "a number of the sheet is changed", "subtle", _change_fact, adds=True),
    Mutation("hedge", "everything that was said is left open", "subtle", _append_template, adds=True),
    Mutation("invented_event", "an event that nobody knows of", "subtle", _append_template, adds=True),
    Mutation("ignored_event", "a good line that passes over what happened", "subtle", _ignore_event, seldom=True),
    Mutation(
        "absent_event", "an event that has not happened in this scene", "subtle", _assume_absent_event, seldom=True
    ),
    Mutation("caricature", "turns of phrase strung together", "subtle", _exaggerate_voice),
    Mutation("flattery", "praise of the player is put first", "subtle", _prepend_template, adds=True),
)
