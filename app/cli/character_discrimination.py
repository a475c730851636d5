"""Measures how well judges tell characters apart."""

from collections import defaultdict
from collections.abc import Sequence

from app.characters.casting import Cast
from app.characters.lineups import build_lineups
from app.characters.schema import CharacterSheet
from app.domain.intervals import Proportion
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import Frozen, Split, Unit
from app.envs.npc_arena.environment import NpcArena
from app.ports.environment import Tools
from app.ports.judges import Panels

_SPLITS: tuple[Split, ...] = ("train", "test")


class CharacterFigure(Frozen):
    """`right`: pairs in which the character's own reply earned more; ties count half."""

    character: str
    pairs: int
    right: float


class DiscriminationFigures(Frozen):
    """`interval` is the 95 % Wilson interval of `share`. Without pairs `share` is null and `interval` is [0, 1]."""

    judges: tuple[str, ...]
    pairs: int
    share: Unit | None
    interval: tuple[Unit, Unit]
    unscored: int
    """Pairs with a missing score."""
    characters: tuple[CharacterFigure, ...]


async def tell_apart(
    arena: NpcArena, panels: Panels, most: int, strangers: Sequence[CharacterSheet] = ()
) -> DiscriminationFigures:
    """Lets the configured panel judge every exemplar against at most `most` exemplars of other characters; `strangers`
    are such without scenes of their own here."""
    panel = panels.build_panel(arena.name, ScoringOptions())
    found = _list_cast_tasks(arena)
    right: defaultdict[str, float] = defaultdict(float)
    pairs: defaultdict[str, int] = defaultdict(int)
    unscored = 0
    known = {sheet.id for sheet in arena.sheets}
    sheets = (*arena.sheets, *(sheet for sheet in strangers if sheet.id not in known))
    for lineup in build_lineups([cast for cast, _ in found.values()], sheets, most):
        task = found[lineup.cast.sheet.id, lineup.cast.scene.id][1]
        scores = await arena.score(task, [Completion(text=text) for text in lineup.candidates], Tools(panel=panel))
        wins = _count_wins(scores)
        unscored += len(lineup.others) - len(wins)
        pairs[lineup.cast.sheet.id] += len(wins)
        right[lineup.cast.sheet.id] += sum(wins)
    total = Proportion(sum(right.values()), sum(pairs.values()))
    return DiscriminationFigures(
        judges=panel.judges,
        pairs=total.trials,
        share=total.value,
        interval=total.interval or (0.0, 1.0),
        unscored=unscored,
        characters=tuple(CharacterFigure(character=one, pairs=pairs[one], right=right[one]) for one in sorted(pairs)),
    )


def _count_wins(scores: Sequence[Score]) -> list[float]:
    """1 for each other reply that earned less than the first, 0.5 for a tie."""
    own, *others = (score.reward for score in scores)
    if own is None:
        return []
    return [1.0 if own > other else 0.5 if own == other else 0.0 for other in others if other is not None]


def _list_cast_tasks(arena: NpcArena) -> dict[tuple[str, str], tuple[Cast, Task]]:
    params = arena.Params()
    tasks = [arena.task(split, index, params) for split in _SPLITS for index in range(arena.size(split, params))]
    cast = [(found, task) for task in tasks if (found := arena.find_cast(task)) is not None]
    return {(one.sheet.id, one.scene.id): (one, task) for one, task in cast}
