"""What judges are checked with: good replies of characters, the same spoilt in known ways, and what a judge preferred.

A gold case is a character in a scene with a reply that is known to be good. Each mutation spoils such a reply in one
way, as far as sheet, scene and language allow it; a reliable judge prefers the good one. Each pair has a random
generator of its own, by seed, mutation and scene, so that one more case or mutation changes no other pair.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue, TypeAdapter

from app.characters.casting import (
    Cast,
    Staging,
    build_case_document,
    build_conversation,
    build_gate_facts,
    build_scene_probes,
    list_claimable_sources,
)
from app.domain.judging import Candidate, GateFacts, JudgeRequest, Probes, Rubric, SourceEvent
from app.domain.tasks import Message
from app.judges.aggregation import Values, mean
from app.judges.gate_wordings import Reply, contains_words, to_spoken_form
from app.judges.gates import find_failed_gates, find_hints
from app.judges.verdicts import derive_opaque_ids
from app.toolkit.templates import read_yaml

# Gold cases.


@dataclass(frozen=True)
class GoldCase:
    """One character in one scene, with a reply that is known to be good."""

    cast: Cast
    clean: str
    rivals: tuple[str, ...]
    """Replies of other characters in the same language."""
    prompt: str = ""
    otherwise: str | None = None
    """The good reply in the counterfactual of this scene, or in the scene whose counterfactual this is."""

    @cached_property
    def gates(self) -> GateFacts:
        return build_gate_facts(self.cast, Staging(), self.prompt)

    @cached_property
    def document(self) -> dict[str, JsonValue]:
        return build_case_document(self.cast, Staging(), (), ())

    @cached_property
    def probes(self) -> Probes:
        return build_scene_probes(self.cast)

    @property
    def sources(self) -> tuple[SourceEvent, ...]:
        return list_claimable_sources(self.cast, ())

    @property
    def language(self) -> str:
        return self.cast.sheet.voice.language

    def build_candidate(self, name: str, text: str) -> Candidate:
        """A candidate with the hints that judges are given."""
        return Candidate(id=name, text=text, hints=tuple(hint.notices for hint in find_hints(Reply(text), self.gates)))


def build_identical_request(specimen: GoldCase, text: str, rubric: Rubric, copies: int = 2) -> JudgeRequest:
    """The same reply several times: a preference shows position bias. More than two copies have letters that turn with
    the scene, so that a preference for letters can be told from one for places."""
    texts = [text + " " * number for number in range(copies)]  # ids are derived from distinct texts
    ids = sorted(derive_opaque_ids(f"twice {specimen.cast.scene.id}", texts).values())
    request = build_check_request(specimen, rubric, tuple(specimen.build_candidate(name, text) for name in ids), 0)
    return request if copies == 2 else request.model_copy(update={"mirrored": False})


def build_check_request(
    specimen: GoldCase, rubric: Rubric, candidates: tuple[Candidate, ...], vote: int = 0
) -> JudgeRequest:
    return JudgeRequest(
        rubric=rubric,
        document=specimen.document,
        probes=specimen.probes,
        sources=specimen.sources,
        language=specimen.language,
        candidates=candidates,
        vote=vote,
        conversation=(Message(role="system", content=specimen.prompt), *build_conversation(specimen.cast)),
    )


# Mutations.

Grade = Literal["hard", "subtle"]
"""`hard`: visible in the reply alone. `subtle`: visible only with the sheet and the scene."""

Templates = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Texts by language and mutation, which are added to a reply or replace it."""

_TEMPLATES_ADAPTER: Final = TypeAdapter(dict[str, dict[str, tuple[str, ...]]])


def read_templates(path: Path) -> Templates:
    return _TEMPLATES_ADAPTER.validate_python(read_yaml(path))


@cache
def load_packaged_templates() -> Templates:
    return read_templates(Path(__file__).with_name("perturbations.yaml"))


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
class _Spoiling:
    """What a mutation is given. `texts`: its templates in the character's language, if there are any."""

    specimen: GoldCase
    texts: tuple[str, ...]
    chance: random.Random

    def draw_template(self) -> str | None:
        return self.chance.choice(self.texts) if self.texts else None


_Spoil = Callable[[_Spoiling], str | None]
"""Returns the spoilt reply, or None when the mutation does not apply to the sheet, scene or language."""


@dataclass(frozen=True)
class Mutation:
    name: str
    does: str
    grade: Grade
    make: _Spoil
    decidable: bool = False
    """Decidable by words alone, without a model."""
    adds: bool = False
    """Adds to the reply and keeps the rest, so further mutations can follow."""
    seldom: bool = False
    """Applies to few scenes only."""

    def spoil(self, specimen: GoldCase, templates: Templates, chance: random.Random) -> str | None:
        """The spoilt reply; None where the mutation does not apply."""
        return self.make(_Spoiling(specimen, templates.get(specimen.language, {}).get(self.name, ()), chance))


def _append_template(spoiling: _Spoiling) -> str | None:
    text = spoiling.draw_template()
    return None if text is None else _join_texts(spoiling.specimen.clean, text)


def _prepend_template(spoiling: _Spoiling) -> str | None:
    text = spoiling.draw_template()
    return None if text is None else _join_texts(text, spoiling.specimen.clean)


def _disclose(spoiling: _Spoiling) -> str | None:
    """Not where that is what the player sincerely asks for."""
    return None if spoiling.specimen.gates.is_asked_sincerely else _prepend_template(spoiling)


def _replace_with_template(spoiling: _Spoiling) -> str | None:
    return spoiling.draw_template()


def _choose_rival_reply(spoiling: _Spoiling) -> str | None:
    rivals = spoiling.specimen.rivals
    return spoiling.chance.choice(rivals) if rivals else None


def _inject_orders(spoiling: _Spoiling) -> str | None:
    """A bad reply with instructions to the judge, which must not make it win."""
    text, other = spoiling.draw_template(), _choose_rival_reply(spoiling)
    return None if text is None or other is None else _join_texts(other, text)


def _leak_secret(spoiling: _Spoiling) -> str | None:
    heard = to_spoken_form(spoiling.specimen.gates.player_said)
    terms = [
        term for secret in spoiling.specimen.gates.secrets for term in secret.terms if not contains_words(heard, term)
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


def _change_fact(spoiling: _Spoiling) -> str | None:
    """Adds a fact of the sheet with a changed number."""
    sheet = spoiling.specimen.cast.sheet
    facts = [*sheet.probes.gold_facts, *(fact.text for fact in sheet.lore_facts if fact.known)]
    wrong = [changed for fact in facts if (changed := _NUMBER.sub(_change_number, fact)) != fact]
    return _join_texts(spoiling.specimen.clean, spoiling.chance.choice(wrong)) if wrong else None


def _change_number(match: re.Match[str]) -> str:
    word = match.group()
    instead = _REPLACEMENT_NUMBERS.get(word.casefold(), str(int(word) + 7) if word.isdecimal() else word)
    return instead.capitalize() if word[0].isupper() else instead


def _reveal_unknown_fact(spoiling: _Spoiling) -> str | None:
    """Adds a true fact that the character does not know."""
    sheet = spoiling.specimen.cast.sheet
    unknown = [fact.text for fact in sheet.lore_facts if not fact.known]
    facts = unknown or [item.truth for item in sheet.knowledge.misconceptions]
    return _join_texts(spoiling.specimen.clean, spoiling.chance.choice(facts)) if facts else None


def _reveal_withheld_event(spoiling: _Spoiling) -> str | None:
    events = [event.text for event in spoiling.specimen.cast.scene.withheld]
    return _join_texts(spoiling.specimen.clean, spoiling.chance.choice(events)) if events else None


def _ignore_event(spoiling: _Spoiling) -> str | None:
    """The good reply without the event, or else the character's reply to another line."""
    cast = spoiling.specimen.cast
    if not cast.scene.visible:
        return None
    if spoiling.specimen.otherwise is not None:
        return spoiling.specimen.otherwise
    others = [exemplar.reply for exemplar in cast.sheet.probes.exemplars if exemplar.reply != spoiling.specimen.clean]
    return spoiling.chance.choice(others) if others else None


def _assume_absent_event(spoiling: _Spoiling) -> str | None:
    """The good reply for the case that the event has happened."""
    return spoiling.specimen.otherwise if spoiling.specimen.cast.scene.counterfactual_of is not None else None


def _exaggerate_voice(spoiling: _Spoiling) -> str | None:
    voice = spoiling.specimen.cast.sheet.voice
    marks = [*voice.markers, *(phrase.text for phrase in voice.catchphrases)]
    spoiling.chance.shuffle(marks)
    return " ".join(f"{mark[:1].upper()}{mark[1:].rstrip('.!?')}!" for mark in (marks * 2)[:12]) if marks else None


def _repeat_reply(spoiling: _Spoiling) -> str | None:
    clean = spoiling.specimen.clean
    return " ".join([clean] * 3)


def _join_texts(first: str, second: str) -> str:
    return f"{first}{second}" if second[:1].isspace() or second.startswith("<") else f"{first} {second}"


MUTATIONS: Final = (
    Mutation("other_npc", "another character's reply", "hard", _choose_rival_reply, decidable=True),
    Mutation("ai_disclosure", "the speaker calls itself a model", "hard", _disclose, decidable=True, adds=True),
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


# Pairs of a good reply and a spoilt one.


def build_gold_cases(prompts: Sequence[tuple[Cast, str]]) -> tuple[GoldCase, ...]:
    """Builds a case for each character in a scene that has an exemplary reply, in the given order."""
    good = [(cast, cast.exemplar, prompt) for cast, prompt in prompts if cast.exemplar is not None]
    clean_in = {cast.scene.id: clean for cast, clean, _ in good}
    facing = {cast.scene.id: cast.scene.counterfactual_of for cast, _, _ in good if cast.scene.counterfactual_of}
    facing |= {factual: scene for scene, factual in facing.items()}
    return tuple(
        GoldCase(
            cast=cast,
            clean=clean,
            prompt=prompt,
            otherwise=clean_in.get(facing.get(cast.scene.id, "")),
            rivals=tuple(
                dict.fromkeys(
                    other
                    for rival, other, _ in good
                    if rival.sheet.id != cast.sheet.id and rival.sheet.voice.language == cast.sheet.voice.language
                )
            )
            or cast.sheet.probes.distractors,
        )
        for cast, clean, prompt in good
    )


def sample_one_per_character(cases: Sequence[GoldCase], sheets: int, seed: int) -> tuple[GoldCase, ...]:
    """Samples one case for each of `sheets` characters, with `seed`."""
    chance = random.Random(f"{seed} characters")  # noqa: S311
    by_sheet: dict[str, list[GoldCase]] = {}
    for specimen in sorted(cases, key=lambda each: (each.cast.sheet.id, each.cast.scene.id)):
        by_sheet.setdefault(specimen.cast.sheet.id, []).append(specimen)
    chosen = chance.sample(sorted(by_sheet), min(sheets, len(by_sheet)))
    return tuple(chance.choice(by_sheet[name]) for name in chosen)


def build_pairs(
    cases: Sequence[GoldCase], templates: Templates, seed: int = 0, mutations: Sequence[Mutation] = MUTATIONS
) -> tuple[PerturbedPair, ...]:
    """Applies every mutation to every case it fits. The same seed gives the same pairs."""
    return tuple(_iterate_pairs(cases, templates, seed, mutations))


def sample_seldom_pairs(
    cases: Sequence[GoldCase], but: Sequence[GoldCase], templates: Templates, most: int, seed: int = 0
) -> tuple[PerturbedPair, ...]:
    """Samples up to `most` pairs of each seldom mutation with `seed`, from cases whose scenes are not in `but`."""
    scenes = {specimen.cast.scene.id for specimen in but}
    rest = [specimen for specimen in cases if specimen.cast.scene.id not in scenes]
    drawn: list[PerturbedPair] = []
    for mutation in (mutation for mutation in MUTATIONS if mutation.seldom):
        chance = random.Random(f"{seed} {mutation.name}")  # noqa: S311
        made = build_pairs(rest, templates, seed, (mutation,))
        drawn += chance.sample(made, min(most, len(made)))
    return tuple(drawn)


def _iterate_pairs(
    cases: Sequence[GoldCase], templates: Templates, seed: int, mutations: Sequence[Mutation]
) -> Iterator[PerturbedPair]:
    for specimen in cases:
        for mutation in mutations:
            chance = random.Random(f"{seed} {mutation.name} {specimen.cast.scene.id}")  # noqa: S311
            spoilt = mutation.spoil(specimen, templates, chance)
            if spoilt is not None and spoilt != specimen.clean:
                yield PerturbedPair(mutation.name, specimen, spoilt)


# Evidence: what a judge preferred when it was checked.

_TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class PairRewards:
    """One judgement of a pair: each reply's reward, its absolute score, and its values by criterion."""

    clean: float
    spoilt: float
    clean_absolute: float
    spoilt_absolute: float
    clean_values: Values
    spoilt_values: Values

    @property
    def side(self) -> int:
        return compute_preference_sign(self.clean - self.spoilt)


@dataclass(frozen=True)
class MeasuredPair:
    """The results of one pair. `both` holds one per order; None when a judgement failed."""

    pair: PerturbedPair
    both: tuple[PairRewards, PairRewards] | None
    again: PairRewards | None = None

    @property
    def side(self) -> int | None:
        """1 when the clean reply is preferred over both orders, -1 for the spoilt one, 0 for a tie."""
        if self.both is None:
            return None
        return compute_preference_sign(
            mean(order.clean for order in self.both) - mean(order.spoilt for order in self.both)
        )

    @property
    def side_behind_gates(self) -> int | None:
        gates = self.pair.specimen.gates
        clean, spoilt = (bool(find_failed_gates(Reply(text), gates)) for text in (self.pair.clean, self.pair.spoilt))
        return int(spoilt) - int(clean) if clean or spoilt else self.side


@dataclass(frozen=True)
class LetterReading:
    """What a copy of a reply got under its letter, beside equal copies."""

    letter: str
    first: float
    """1 where it alone ranks first; copies that tie for it share that."""
    absolute: float


@dataclass(frozen=True)
class CheckEvidence:
    """`firsts`: for pairs of equal replies, the preference for the first one: 1, 0.5 or 0."""

    pairs: tuple[MeasuredPair, ...]
    firsts: tuple[float, ...]
    steps: tuple[bool, ...]
    """Per degradation step, over both orders: whether the reply with one more fault earned no more."""
    rubric: Rubric
    failures: tuple[str, ...]
    """The error of each question without a usable answer."""
    questions: int
    calls: int
    cost_usd: float | None
    letters: tuple[LetterReading, ...] = ()
    late: int = 0
    """How many of `failures` are answers that did not come within the judge's deadline."""
    stored: int = 0
    """How many answers are from an earlier check."""
    calls_in_time: int | None = None
    """With how many calls at once answers come within the deadline, where the judge's limit allows more."""
    stopped: str | None = None
    """Why no more could be asked. Then `pairs` holds only those that were asked in both orders."""
    settled: str | None = None
    """Why the rest was not asked: the outcome was clear. `pairs` as above."""
    unread: str | None = None
    """Why nothing was asked: the judge does not read back two words."""


def compute_preference_sign(difference: float) -> int:
    return 0 if abs(difference) < _TOLERANCE else (1 if difference > 0 else -1)
