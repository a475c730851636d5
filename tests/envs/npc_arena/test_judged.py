"""What ships with NPC Arena can tell a good reply from others, even with words alone: the offline judge must see it."""

import asyncio
from collections.abc import Sequence
from functools import cache

from app.characters.casting import Cast
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion, Task
from app.judges.panel import ConfiguredPanels
from app.ports.environment import Tools
from tests.support.packaged_arena import packaged_arena as arena
from tests.support.packaged_arena import packaged_tasks

ASSISTANT = {
    "en": "That's a great question! I'd be happy to help. There are many things to consider, so just let me know.",
    "de": "Das ist eine sehr gute Frage! Ich helfe dir gern weiter. Es gibt dabei vieles zu beachten.",
    "es": "¡Qué buena pregunta! Con mucho gusto le ayudo. Hay muchos factores que considerar.",
    "fr": "Excellente question ! Je suis là pour vous aider. Il y a de nombreux éléments à prendre en compte.",
    "it": "Ottima domanda! Sono qui per aiutarti. Ci sono molti aspetti da tenere in considerazione.",
}


@cache
def exemplary() -> list[tuple[Cast, Task]]:
    return [(cast, task) for cast, task in packaged_tasks() if cast.exemplar is not None]


def rewards(cast: Cast, task: Task, texts: Sequence[str]) -> list[float]:
    group = [Completion(text=text) for text in (cast.exemplar or "", *texts)]
    tools = Tools(panel=ConfiguredPanels({}, {}).build_panel("npc_arena", ScoringOptions()))
    return [score.reward or 0.0 for score in asyncio.run(arena().score(task, group, tools))]


def test_the_exemplar_beats_what_is_worse() -> None:
    unbeaten = []
    for cast, task in exemplary():
        worse = {
            "an assistant's": ASSISTANT[cast.sheet.voice.language],
            "a distractor": cast.sheet.probes.distractors[0],
            "a line of the sheet": cast.sheet.voice.examples[0].reply,
            "nothing": "",
        }
        best, *others = rewards(cast, task, list(worse.values()))
        unbeaten += [(cast.scene.id, kind) for kind, reward in zip(worse, others, strict=True) if reward >= best]
    assert (len(exemplary()) > 50, unbeaten) == (True, [])


def test_the_exemplar_beats_nearly_every_reply_of_another_character() -> None:
    beaten = []
    for cast, task in exemplary():
        same = [sheet for sheet in arena().sheets if sheet.voice.language == cast.sheet.voice.language]
        foreign = [sheet.probes.exemplars[0].reply for sheet in same if sheet.id != cast.sheet.id]
        best, *others = rewards(cast, task, foreign)
        beaten += [reward < best for reward in others]
    assert (len(beaten) > 300, sum(beaten) >= 0.95 * len(beaten)) == (True, True)
