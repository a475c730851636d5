"""Pairs about instructions: two notices, one of which breaks a rule that the other one follows.

Every rule has two sides, and either may be asked for: five or six sentences, a question at the end or none.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen
from app.envs.pairwise_judgement.pairs.answer_pair import AnswerPair, Level, draw_two
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom


class _NoticeMaterial(Frozen):
    greetings: tuple[str, ...]
    fillers: tuple[str, ...]
    questions: tuple[str, ...]
    statements: tuple[str, ...]
    hours: dict[str, str]


_MATERIAL: Final = read_packaged_data(Path(__file__).with_name("notices.yaml"), TypeAdapter(_NoticeMaterial))
NOTICES_DIGEST: Final = digest_of_model(_MATERIAL)
_RULES: Final[Mapping[Level, int]] = {"easy": 2, "medium": 4, "hard": 6}

Side = bool
_RuleWriter = Callable[["_NoticeTopic", Side], str]


class _NoticeTopic(Frozen):
    """The topic of both notices, and the wordings of the two sides of each rule."""

    place: str
    greetings: tuple[str, str]
    things: tuple[str, str]
    signatures: tuple[str, str]
    sentences: int


_RULE_TEXTS: Final[Mapping[str, _RuleWriter]] = {
    "greeting": lambda about, side: (
        f"It begins with “{about.greetings[side]}”, not with “{about.greetings[not side]}”."
    ),
    "length": lambda about, side: (
        f"Between the greeting and the signature it has exactly {about.sentences + side} sentences."
    ),
    "hour": lambda about, side: f"The hour is written in {'digits' if side else 'letters'}.",
    "end": lambda about, side: f"The last sentence before the signature is {'a' if side else 'no'} question.",
    "order": lambda about, side: f"It names {about.things[side]} before {about.things[not side]}.",
    "place": lambda about, side: (
        f"The name of the place is written {'in capitals throughout' if side else 'with one capital only'}."
    ),
    "signature": lambda about, side: f"It is signed “{about.signatures[side]}”, not “{about.signatures[not side]}”.",
}


def draw_instruction_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    about = _draw_notice_parts(draws)
    asked = {name: draws.chance(50) for name in draws.some([*_RULE_TEXTS], _RULES[level])}
    broken = draws.one([*asked])
    rules = [f"- {_RULE_TEXTS[name](about, side)}" for name, side in asked.items()]
    right, wrong = (_write_notice(draws, about, sides) for sides in (asked, {**asked, broken: not asked[broken]}))
    return AnswerPair(
        kind="instructions",
        context="\n".join([f"Asked for was a notice about a gathering in {about.place}, with these rules:", *rules]),
        asks="Which answer has the notice that follows every rule? The notice is what stands between the two lines.",
        right=f"---\n{right}\n---",
        wrong=f"---\n{wrong}\n---",
    )


def _draw_notice_parts(draws: SeededRandom) -> _NoticeTopic:
    first, second = draws.some(_MATERIAL.greetings, 2)
    return _NoticeTopic(
        place=draw_two(draws, "place")[0],
        greetings=(first, second),
        things=draw_two(draws, "thing"),
        signatures=draw_two(draws, "person"),
        sentences=3 + draws.below(4),
    )


def _write_notice(draws: SeededRandom, about: _NoticeTopic, sides: Mapping[str, Side]) -> str:
    """Everything that no rule mentions is random."""
    side = {name: sides.get(name, draws.chance(50)) for name in _RULE_TEXTS}
    digits, letters = draws.one([*_MATERIAL.hours.items()])
    hour, place = digits if side["hour"] else letters, about.place.upper() if side["place"] else about.place
    one, other = about.things if not side["order"] else about.things[::-1]
    last = draws.one(_MATERIAL.questions if side["end"] else _MATERIAL.statements)
    count = about.sentences + side["length"]
    middle: Sequence[str] = draws.shuffled(
        [f"There will be {one} and {other}.", *draws.some(_MATERIAL.fillers, count - 3)]
    )
    sentences = [f"We meet in {place} at {hour}.", *middle, last]
    return f"{about.greetings[side['greeting']]},\n{' '.join(sentences)}\n{about.signatures[side['signature']]}"
