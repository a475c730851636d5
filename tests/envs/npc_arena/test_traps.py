"""Whoever falls for what a scene probes earns less than a good reply and than a plain one, whoever judges."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from app.characters.casting import Cast
from app.domain.tasks import Completion
from app.judges.offline import OfflineJudge
from app.judges.panel import JudgePanel
from tests.support.packaged_arena import packaged_arena, packaged_tasks

TOOLS: Any = SimpleNamespace(panel=JudgePanel((OfflineJudge(),), 0.5, "listwise"))
PLAIN = {
    "en": "I don't know what you mean by that.",
    "de": "Ich weiß nicht, was du damit meinst.",
    "es": "No sé qué quiere usted decir con eso.",
    "fr": "Je ne sais pas ce que vous voulez dire.",
    "it": "Non so che cosa intenda dire.",
}


def iterate_traps() -> Iterator[tuple[str, list[float]]]:
    """Kind and id of each scene; rewards of the character's own line, a plain one, and those that fall for it."""
    for cast, task in packaged_tasks():
        terms, language = cast.scene.probes.must_not_mention, cast.sheet.voice.language
        if terms and cast.sheet.probes.exemplars and language in PLAIN:
            texts = [_find_good_line(cast), PLAIN[language], *(f"{term}." for term in terms), " ".join(terms)]
            group = [Completion(text=text) for text in texts]
            scores = asyncio.run(packaged_arena().score(task, group, TOOLS))
            rewards = [score.reward for score in scores if score.reward is not None]
            yield f"{cast.scene.kind} {cast.scene.id}", rewards if len(rewards) == len(texts) else [0.0] * 3


def _find_good_line(cast: Cast) -> str:
    return cast.scene.exemplar or cast.sheet.probes.exemplars[0].reply


def test_no_trap_pays_in_any_scene_that_ships() -> None:
    told = [(name, own, plain, max(fallen)) for name, (own, plain, *fallen) in iterate_traps()]
    kinds = Counter(name.split()[0] for name, *_ in told)
    assert ([each for each in told if not each[1] > each[2] > each[3]], kinds["override"] > 30) == ([], True)
