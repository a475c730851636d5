"""Pairs about given texts: passages, character sheets, conversations, requests.

Each fact of a scene has two values, one for the subject and one for something else: the mill was built in 1890, the
bridge in 1902. One answer has all values right, the other uses the wrong one of the two for one fact.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.digests import digest
from app.domain.values import Frozen
from app.envs.pairwise_judgement.pairs.answer_pair import AnswerPair, Kind, Level, draw_two, get_words
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom


class _FactTemplate(Frozen):
    pool: str
    topic: str = ""
    """What a person who wants to know the value asks for."""
    tells: tuple[str, ...]
    """`{a}` is the subject's value, `{b}` the other one. Either comes first equally often."""
    claims: tuple[str, ...]


class _SceneTemplate(Frozen):
    kind: Kind
    asks: tuple[str, ...]
    opening: str
    between: str = " "
    frame: str = "{claims}"
    joint: str = " "
    whole: bool = False
    """Whether an answer has to mention every fact."""
    names: dict[str, str] = {}
    """Pools of names by slot."""
    facts: tuple[_FactTemplate, ...]


SCENES: Final = read_packaged_data(Path(__file__).with_name("scenes.yaml"), TypeAdapter(tuple[_SceneTemplate, ...]))
SCENES_DIGEST: Final = digest([scene.model_dump(mode="json") for scene in SCENES])
_FACTS: Final[Mapping[Level, int]] = {"easy": 2, "medium": 3, "hard": 5}
_CLAIMS: Final[Mapping[Level, int]] = {"easy": 1, "medium": 2, "hard": 4}
_SILENCE: Final = ("it is hard to say", "little can be said", "opinions differ", "one would have to look it up")


class _DrawnFact(Frozen):
    told: _FactTemplate
    names: dict[str, str]
    a: str
    b: str

    def tell(self, draws: SeededRandom) -> str:
        values = {**self.names, "a": _as_told(self.a), "b": _as_told(self.b)}
        return draws.one(self.told.tells).format_map(values)

    def claim(self, draws: SeededRandom, *, wrong: bool = False) -> str:
        value = _as_claimed(self.b if wrong else self.a)
        return draws.one(self.told.claims).format_map({**self.names, "v": value})


def draw_scene_pair(draws: SeededRandom, kind: Kind, level: Level) -> AnswerPair:
    scene, names, facts = _draw_scene(draws, kind, level)
    claimed = facts if scene.whole else draws.some(facts, _CLAIMS[level])
    mistaken = draws.one(claimed)
    answers = [
        scene.frame.replace(
            "{claims}",
            scene.joint.join(fact.claim(draws, wrong=wrong and fact is mistaken) for fact in draws.shuffled(claimed)),
        )
        for wrong in (False, True)
    ]
    asks = draws.one(scene.asks).format_map(names)
    return AnswerPair(
        kind=kind, context=_write_context(draws, scene, names, facts), asks=asks, right=answers[0], wrong=answers[1]
    )


def draw_evasion_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """Both answers state a fact about one topic and evade another; the question asked about one of the two."""
    scene, names, facts = _draw_scene(draws, "grounded", level)
    asked, other = draws.some(facts, 2)
    right, wrong = _write_evasion(draws, asked, other), _write_evasion(draws, other, asked)
    wishes = f"Somebody wants to know {asked.told.topic}.", f"They do not ask {other.told.topic}."
    return AnswerPair(
        kind="evasion",
        context=f"{_write_context(draws, scene, names, facts)}\n{' '.join(wishes)}",
        asks=draws.one(
            ("Which answer tells them what they want to know?", "Which answer does not evade the question?")
        ),
        right=right,
        wrong=wrong,
    )


def _write_evasion(draws: SeededRandom, said: _DrawnFact, unsaid: _DrawnFact) -> str:
    parts = [
        f"If you ask {said.told.topic}: {said.claim(draws)}",
        f"If you ask {unsaid.told.topic}: {draws.one(_SILENCE)}.",
    ]
    return " ".join(draws.shuffled(parts))


def _draw_scene(
    draws: SeededRandom, kind: Kind, level: Level
) -> tuple[_SceneTemplate, dict[str, str], Sequence[_DrawnFact]]:
    scene = draws.one([scene for scene in SCENES if scene.kind == kind])
    names = dict(zip(scene.names, draws.some(get_words("person"), len(scene.names)), strict=True))
    facts = []
    for told in draws.some(scene.facts, _FACTS[level]):
        while {*(pair := draw_two(draws, told.pool))} & {*names.values()}:
            pass
        facts.append(_DrawnFact(told=told, names=names, a=pair[0], b=pair[1]))
    return scene, names, facts


def _write_context(
    draws: SeededRandom, scene: _SceneTemplate, names: Mapping[str, str], facts: Sequence[_DrawnFact]
) -> str:
    told = scene.between.join(fact.tell(draws) for fact in draws.shuffled(facts))
    return f"{scene.opening.format_map(names)}\n{told}"


def _as_told(value: str) -> str:
    return value.split("|")[0]


def _as_claimed(value: str) -> str:
    return value.split("|")[-1]
