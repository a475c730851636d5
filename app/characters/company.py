"""Several characters in a scene: who is there, what they say, who hears it, and when the character lets a turn pass.

    others  [{sheet: ottoline_vesk, name: Ottoline, here: sits in the stern}]
    seat    {lines: [{speaker: player, text: …}, {speaker: Ottoline, text: …, heard_by: [player], leak_terms: […]}],
             passing: right, exemplar: (says nothing), tempting: [{say: …, why: …}]}
    turns   [{say: …, seat: {lines: […], passing: wrong, exemplar: …}}]

The policy has one seat: it speaks for the scene's own character alone, so an episode is one trajectory. The others
speak by script. Their lines come in the player's message, each on a line of its own behind `[name]`. A line that the
character does not hear is in no prompt, and judges know it as a withheld event.

Who speaks next is whom the last line names, else the first in the scene's order. The character speaks last in each
turn, and may let it pass. Code verifies whether that is right (`turn_taking`), and that a reply does not say what
another there would say; gates close on lines for others, on others' secrets, and on answers to what was not heard.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, model_validator

from app.characters.actions import SceneFault, TemptingReply
from app.characters.lorebooks import mentions, normalise_spelling, spell_spoken, split_spoken_words
from app.characters.schema import SAID, CharacterSheet, Text, Word, Words
from app.domain.scores import OUT_OF_TURN_CAP, SILENCE_CAP, TURN_TAKING, Score, VerifiedPart, add_part
from app.domain.values import Frozen, Name
from app.toolkit.templates import read_packaged_data

PASSING_REPLY: Final = "(says nothing)"
"""The reply that lets a turn pass, in every language. An empty reply is none: models are empty by mistake, too."""
NOBODY_SPOKE: Final = "[…]"
"""The first message where the character speaks first. What stands between brackets is no speech of the player."""
PLAYER: Final = "player"
NPC: Final = "npc"
TURN_SHARE: Final = 0.3
"""The share of the reward that taking turns has. The line keeps more, as beside actions."""
_CAPS: Final = {"out_of_turn": OUT_OF_TURN_CAP, "passes_when_asked": SILENCE_CAP}
"""The most that an episode earns, by its flags: judges read its other lines."""
MOST_OTHERS: Final = 3
_MOST_LINES: Final = 24

Passing = Literal["right", "wrong", "allowed"]
"""Whether the character may let a turn pass."""

Move = Literal["passes", "speaks", "reports"]
"""What a reply does with its turn. `reports`: it says what somebody else there would say."""

_WORTH: Final[dict[tuple[Passing, Move], float]] = {
    ("right", "passes"): 1.0,
    ("wrong", "speaks"): 1.0,
    # Who only ever passes shows nothing of the character.
    ("allowed", "passes"): 0.5,
    ("allowed", "speaks"): 1.0,
}
"""What a turn is worth; nothing where it is not named here."""

_PASSED: Final = re.compile(r"[(\[*_]{1,3}\s?says\snothing[.]?\s?[)\]*_]{1,3}[.]?", re.IGNORECASE)


_SENTENCE: Final = re.compile(r"[^.!?;:\n…]+")
_QUESTION: Final = re.compile(r"([^.!?;\n…]+)\?")
_STAGING: Final = re.compile(r"\*[^*]*\*")
_READ: Final = 20_000
"""Characters of a reply that are read."""


class _SpeechWords(Frozen):
    before: str
    reports: str
    asks: str


_SPEECH: Final = read_packaged_data(
    Path(__file__).with_name("company_words.yaml"), TypeAdapter(dict[str, _SpeechWords])
)


def _require_label(name: str) -> str:
    """A name stands between brackets at the beginning of a line, and must not pass for anything else."""
    if name.casefold() in (PLAYER, NPC) or not all(letter.isalnum() or letter in " '’-." for letter in name):
        raise ValueError("a name has letters, digits, spaces, apostrophes, hyphens and full stops, and is not a role")
    if not any(letter.isalpha() for letter in name):
        raise ValueError("a name has a letter")
    return name


def _require_unlabelled(text: str) -> str:
    """On one line, so that no part of it passes for the line of somebody else."""
    if text.startswith("["):
        raise ValueError("a line that begins with a bracket would pass for the line of somebody else")
    return " ".join(text.split())


_Label = Annotated[
    str, StringConstraints(min_length=1, max_length=60, strip_whitespace=True), AfterValidator(_require_label)
]
_Line = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1_000, strip_whitespace=True),
    AfterValidator(_require_unlabelled),
]


class OtherCharacter(Frozen):
    """Another character in the scene, who speaks by script."""

    sheet: Annotated[Name | None, SAID] = None
    """Id of its sheet, if it has one: the secrets there are none of the character's."""
    name: _Label
    """What it is called in this scene."""
    here: Text
    """What the character sees of it here."""
    shares: Annotated[tuple[Name, ...], SAID] = ()
    """Secrets of its sheet that the character may speak of here."""
    leak_terms: Annotated[Words, SAID] = ()
    """Words of what else it keeps to itself, which the character cannot know either."""


class CompanyLine(Frozen):
    """What somebody says."""

    speaker: Word
    """`player`, `npc`, or the name of one of the others."""
    text: _Line
    heard_by: Annotated[tuple[Word, ...], SAID] = ()
    """Those who hear it, named as speakers are; all where nothing is said."""
    leak_terms: Annotated[Words, SAID] = ()
    """Words by which a reply would show that the character heard it; for lines that it does not hear."""

    @property
    def is_heard(self) -> bool:
        """By the character."""
        return not self.heard_by or NPC in self.heard_by or self.speaker == NPC

    @model_validator(mode="after")
    def _require_terms_of_what_is_unheard(self) -> Self:
        if self.is_heard and self.leak_terms:
            raise ValueError("leak_terms: for lines that the character does not hear alone")
        if not self.is_heard and not self.leak_terms:
            raise ValueError("leak_terms: missing: nobody could notice that the character answers this line")
        return self


class SeatTurn(Frozen):
    """What is said before a reply of the character, and what the reply should be. `lines` that are heard reach the
    policy; the rest is for checks by code and for tests."""

    lines: Annotated[tuple[CompanyLine, ...], Field(max_length=_MOST_LINES), SAID] = ()
    """In the scene's order. In the opening, all that has been said so far. In a further turn, what others say before
    the player."""
    answers: Annotated[tuple[CompanyLine, ...], Field(max_length=_MOST_LINES), SAID] = ()
    """In a further turn, what others say after the player."""
    passing: Passing = "wrong"
    exemplar: Text
    """A right reply."""
    tempting: Annotated[tuple[TemptingReply, ...], SAID] = ()
    """Replies that must earn less than the right one."""

    @property
    def scripted(self) -> tuple[CompanyLine, ...]:
        return (*self.lines, *self.answers)


# What authors may get wrong.


def find_seat_fault(others: Sequence[OtherCharacter], opening: SeatTurn, turns: Sequence[SeatTurn | None]) -> str:
    """What in these fields of a scene does not fit, beginning with the field; empty if all does."""
    return next(_find_seat_faults(others, opening, turns), "")


def _find_seat_faults(
    others: Sequence[OtherCharacter], opening: SeatTurn, turns: Sequence[SeatTurn | None]
) -> Iterator[str]:
    if not 1 <= len(others) <= MOST_OTHERS:
        yield f"others: a scene with a seat has one to {MOST_OTHERS} other characters"
    yield from _find_repeated("sheet", [other.sheet for other in others])
    yield from _find_repeated("name", [other.name.casefold() for other in others])
    if opening.answers:
        yield "seat.answers: for further turns alone, since the opening has the player's lines in `lines`"
    if not opening.tempting:
        yield "seat.tempting: missing: what a weak policy says here"
    yield from _find_order_faults(opening.lines)
    names = {other.name for other in others}
    yield from _find_line_faults("seat", opening, {PLAYER, NPC, *names}, {PLAYER, NPC, *names})
    for place, turn in enumerate(turns):
        if turn is None:
            yield f"turns.{place}.seat: missing: whether the character may let this turn pass"
        else:
            yield from _find_line_faults(f"turns.{place}.seat", turn, {PLAYER, *names}, {PLAYER, NPC, *names})


def _find_repeated(field: str, values: Sequence[str | None]) -> Iterator[str]:
    for place, value in enumerate(values):
        if value is not None and value in values[:place]:
            yield f"others.{place}.{field}: {value!r} is there already"


def _find_order_faults(lines: Sequence[CompanyLine]) -> Iterator[str]:
    heard = [line for line in lines if line.is_heard]
    if not heard or heard[-1].speaker == NPC:
        yield "seat.lines: must end with a line of somebody else that the character hears"
    if any(first.speaker == second.speaker == NPC for first, second in pairwise(heard)):
        yield "seat.lines: between two lines of the character somebody else speaks"


def _find_line_faults(field: str, turn: SeatTurn, speakers: Collection[str], hearers: Collection[str]) -> Iterator[str]:
    named = [*((f"lines.{place}", line) for place, line in enumerate(turn.lines))]
    named += ((f"answers.{place}", line) for place, line in enumerate(turn.answers))
    for place, line in named:
        if line.speaker not in speakers:
            yield f"{field}.{place}.speaker: {line.speaker!r} does not speak here"
        if unknown := set(line.heard_by) - set(hearers):
            yield f"{field}.{place}.heard_by: {min(unknown)!r} is not in the scene"


def find_company_fault(
    sheet: CharacterSheet, scene_others: Sequence[OtherCharacter], sheets: Sequence[CharacterSheet]
) -> SceneFault | None:
    """What does not fit the character's sheet, or those of the others as far as they are served."""
    return next(_find_company_faults(sheet, scene_others, {one.id: one for one in sheets}), None)


def _find_company_faults(
    sheet: CharacterSheet, scene_others: Sequence[OtherCharacter], sheets: dict[str, CharacterSheet]
) -> Iterator[SceneFault]:
    own = {name.casefold() for name in (sheet.identity.name, *sheet.identity.aliases)}
    for place, other in enumerate(scene_others):
        served = None if other.sheet is None else sheets.get(other.sheet)
        secrets = () if served is None else served.secrets
        if other.sheet == sheet.id:
            yield SceneFault(f"others.{place}.sheet", "this is the character itself")
        elif other.sheet is not None and served is None:
            yield SceneFault(f"others.{place}.sheet", f"there is no sheet {other.sheet!r}")
        elif unknown := set(other.shares) - {secret.id for secret in secrets}:
            yield SceneFault(f"others.{place}.shares", f"its sheet has no secret {min(unknown)!r}")
        if other.name.casefold() in own:
            yield SceneFault(f"others.{place}.name", "the character itself is called so")


def find_seat_doubts(seats: Sequence[SeatTurn]) -> Iterator[SceneFault]:
    """Replies of the scene's author that contradict it: a right reply that passes where passing is wrong, or speaks
    where passing is right, and one that tells of a line which was not heard."""
    terms = list_unheard_terms(seats)
    for number, turn in enumerate(seats):
        field = "seat" if not number else f"turns.{number - 1}.seat"
        move: Move = "passes" if is_pass(turn.exemplar) else "speaks"
        if (turn.passing, move) not in _WORTH:
            yield SceneFault(f"{field}.exemplar", f"it {move}, and passing is {turn.passing}")
        said = normalise_spelling(turn.exemplar)
        if told := next((term for term in terms if mentions(said, normalise_spelling(term))), None):
            yield SceneFault(f"{field}.exemplar", f"it says {told!r} of a line that the character does not hear")
        for place, tempting in enumerate(turn.tempting):
            if tempting.say == turn.exemplar:
                yield SceneFault(f"{field}.tempting.{place}", "this is the right reply")


# What is said.


@dataclass(frozen=True)
class SpokenTurn:
    """What is said until somebody else speaks: a line of the character, or what the others say before one."""

    is_own: bool
    text: str


def list_spoken_turns(lines: Sequence[CompanyLine]) -> tuple[SpokenTurn, ...]:
    """As the character hears them, those of others in one text. A message of the player stands before each of the
    character: templates refuse a conversation that begins with the assistant."""
    turns: list[SpokenTurn] = []
    waiting: list[CompanyLine] = []
    for line in (one for one in lines if one.is_heard):
        if line.speaker == NPC:
            turns += [SpokenTurn(False, write_heard(waiting) or NOBODY_SPOKE), SpokenTurn(True, line.text)]
            waiting = []
        else:
            waiting.append(line)
    return (*turns, SpokenTurn(False, write_heard(waiting)))


def write_heard(lines: Sequence[CompanyLine]) -> str:
    """What the character hears of them, a line each. Lines of the player have no name before them."""
    heard = (line for line in lines if line.is_heard)
    return "\n".join(line.text if line.speaker == PLAYER else f"[{line.speaker}] {line.text}" for line in heard)


def list_unheard_terms(turns: Sequence[SeatTurn]) -> tuple[str, ...]:
    return tuple(term for turn in turns for line in turn.scripted for term in line.leak_terms)


def order_turn(turn: SeatTurn, say: str, said: str) -> tuple[CompanyLine, ...]:
    """The lines of a further turn, in which the player says `say`. Whom the last line names speaks next, else the first
    in the scene's order. `said`: the character's words before, as `spell_spoken` has them."""
    left = [*turn.lines, CompanyLine(speaker=PLAYER, text=say), *turn.answers]
    ordered: list[CompanyLine] = []
    while left:
        place = next((place for place, line in enumerate(left) if spell_spoken(line.speaker) in said), 0)
        ordered.append(left.pop(place))
        said = spell_spoken(ordered[-1].text)
    return tuple(ordered)


# Whose turn it is.


def is_pass(spoken: str) -> bool:
    """Whether a reply lets the turn pass: the stated form and nothing else."""
    return len(spoken) <= 2 * len(PASSING_REPLY) and _PASSED.fullmatch(spoken.strip()) is not None


def read_move(spoken: str, asked: str, names: Sequence[str], language: str) -> Move:
    """`asked`: what was said before the reply. `names`: of the others in the scene. In a language without a list of
    such words no reply reports."""
    if is_pass(spoken):
        return "passes"
    speech = _SPEECH.get(language)
    if speech is None or _asks_about(asked, names, speech):
        return "speaks"
    return "reports" if _reports_another(spoken, names, speech) else "speaks"


def _asks_about(asked: str, names: Sequence[str], speech: _SpeechWords) -> bool:
    """Whether somebody wants to know what another says: "What would Ines say?"."""
    called = re.compile(rf" (?:{_list_called(names, speech.before.split())}) ")
    words = frozenset(speech.asks.split())
    questions = map(spell_spoken, _QUESTION.findall(asked))
    return any(called.search(one) and not words.isdisjoint(one.split()) for one in questions)


def _reports_another(spoken: str, names: Sequence[str], speech: _SpeechWords) -> bool:
    """Whether a clause begins with one of them and tells what that one will or would say: "Ines will tell you that it
    is late"."""
    before = speech.before.split()
    called = _list_called(names, before)
    tells = re.compile(rf" (?:(?:{'|'.join(before)}) ){{0,2}}(?:(?:{called}) ){{1,3}}{speech.reports}")
    # A comma may stand before what is told, so that a clause is read on over it.
    return any(
        tells.match(spell_spoken(" ".join(clauses[place : place + 3])))
        for sentence in _SENTENCE.findall(_STAGING.sub(" ", spoken[:_READ]))
        for clauses in [sentence.split(",")]
        for place in range(len(clauses))
    )


def _list_called(names: Sequence[str], before: Collection[str]) -> str:
    """A pattern of the words by which the others may be called, titles among them. Long ones may have another ending:
    of "il dottor Lanzarotti" it is said "il dottore"."""
    words = {word for name in names for word in split_spoken_words(name) if len(word) > 4 or word not in before}
    called = (re.escape(word) + (r"\w{0,2}" if len(word) > 4 else "") for word in sorted(words))
    return "|".join(called) or "(?!)"


def verify_turns(moves: Sequence[Move], wanted: Sequence[Passing]) -> VerifiedPart:
    """The mean of what the turns are worth, those that were not played as 0. `moves`: by reply."""
    played = list(zip(wanted, moves, strict=False))
    value = sum(_WORTH.get(turn, 0.0) for turn in played) / len(wanted)
    flags = {
        "passes_when_asked": ("wrong", "passes") in played,
        "out_of_turn": any(passing == "right" and move != "passes" for passing, move in played),
    }
    said = tuple(flag for flag, is_so in flags.items() if is_so)
    note = "it ends before the scene does" if len(played) < len(wanted) else _describe_turns(said, moves, value)
    return VerifiedPart(TURN_TAKING, TURN_SHARE, value, note, said, min((_CAPS[flag] for flag in said), default=None))


def _describe_turns(flags: Sequence[str], moves: Sequence[Move], value: float) -> str:
    if "out_of_turn" in flags:
        return "it speaks where somebody else was asked"
    if "passes_when_asked" in flags:
        return "it says nothing where the character is asked"
    if "reports" in moves:
        return "it says what somebody else would say"
    if value < 1.0:
        return "it says nothing where it might have spoken"
    return "each turn is taken or left as it should be"


def score_passes(moves: Sequence[Move], wanted: Sequence[Passing]) -> Score:
    """The score of an episode in which the character says nothing at all. The silence is worth what its worst turn is:
    no judge could read it."""
    part = verify_turns(moves, wanted)
    worths = [_WORTH.get(turn, 0.0) for turn in zip(wanted, moves, strict=False)]
    worst = min(worths) if len(moves) == len(wanted) else 0.0
    says = f"Nothing is said, so whether that is right is all that counts: {part.note}."
    return add_part(Score(outcome="scored", reward=worst, gate=1.0, absolute=worst, rationale=says), part)
