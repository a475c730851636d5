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
from app.envs.pairwise_judgement.pairs.pairs import Kind, Level, Pair, two_of, words_of
from app.toolkit.package_data import packaged_data
from app.toolkit.seeded import Draws


class _Told(Frozen):
    pool: str
    topic: str = ""
    """What a person who wants to know the value asks for."""
    tells: tuple[str, ...]
    """`{a}` is the subject's value, `{b}` the other one. Either comes first equally often."""
    claims: tuple[str, ...]


class _Scene(Frozen):
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
    facts: tuple[_Told, ...]


SCENES: Final = packaged_data(Path(__file__).with_name("scenes.yaml"), TypeAdapter(tuple[_Scene, ...]))
SCENES_DIGEST: Final = digest([scene.model_dump(mode="json") for scene in SCENES])
_FACTS: Final[Mapping[Level, int]] = {"easy": 2, "medium": 3, "hard": 5}
_CLAIMS: Final[Mapping[Level, int]] = {"easy": 1, "medium": 2, "hard": 4}
_SILENCE: Final = ("it is hard to say", "little can be said", "opinions differ", "one would have to look it up")


class _Drawn(Frozen):
    told: _Told
    names: dict[str, str]
    a: str
    b: str

    def tells(self, draws: Draws) -> str:
        values = {**self.names, "a": _as_told(self.a), "b": _as_told(self.b)}
        return draws.one(self.told.tells).format_map(values)

    def claim(self, draws: Draws, *, wrong: bool = False) -> str:
        value = _as_claimed(self.b if wrong else self.a)
        return draws.one(self.told.claims).format_map({**self.names, "v": value})


def scene_pair(draws: Draws, kind: Kind, level: Level) -> Pair:
    scene, names, facts = _drawn(draws, kind, level)
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
    return Pair(kind=kind, context=_context(draws, scene, names, facts), asks=asks, right=answers[0], wrong=answers[1])


def evasion(draws: Draws, level: Level) -> Pair:
    """Both answers state a fact about one topic and evade another; the question asked about one of the two."""
    scene, names, facts = _drawn(draws, "grounded", level)
    asked, other = draws.some(facts, 2)
    right, wrong = _evading(draws, asked, other), _evading(draws, other, asked)
    wishes = f"Somebody wants to know {asked.told.topic}.", f"They do not ask {other.told.topic}."
    return Pair(
        kind="evasion",
        context=f"{_context(draws, scene, names, facts)}\n{' '.join(wishes)}",
        asks=draws.one(
            ("Which answer tells them what they want to know?", "Which answer does not evade the question?")
        ),
        right=right,
        wrong=wrong,
    )


def _evading(draws: Draws, said: _Drawn, unsaid: _Drawn) -> str:
    parts = [
        f"If you ask {said.told.topic}: {said.claim(draws)}",
        f"If you ask {unsaid.told.topic}: {draws.one(_SILENCE)}.",
    ]
    return " ".join(draws.shuffled(parts))


def _drawn(draws: Draws, kind: Kind, level: Level) -> tuple[_Scene, dict[str, str], Sequence[_Drawn]]:
    scene = draws.one([scene for scene in SCENES if scene.kind == kind])
    names = dict(zip(scene.names, draws.some(words_of("person"), len(scene.names)), strict=True))
    facts = []
    for told in draws.some(scene.facts, _FACTS[level]):
        while {*(pair := two_of(draws, told.pool))} & {*names.values()}:
            pass
        facts.append(_Drawn(told=told, names=names, a=pair[0], b=pair[1]))
    return scene, names, facts


def _context(draws: Draws, scene: _Scene, names: Mapping[str, str], facts: Sequence[_Drawn]) -> str:
    told = scene.between.join(fact.tells(draws) for fact in draws.shuffled(facts))
    return f"{scene.opening.format_map(names)}\n{told}"


def _as_told(value: str) -> str:
    return value.split("|")[0]


def _as_claimed(value: str) -> str:
    return value.split("|")[-1]
