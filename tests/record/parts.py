"""Every part of the record, in the order in which they are made.

Tables, commands, OpenAPI, metrics and settings are kept as generated pages of docs/."""

from collections.abc import Mapping

from tests.record.digests import digests
from tests.record.episodes import episodes
from tests.record.judge_bodies import judge_bodies
from tests.record.routes import routes
from tests.record.rows import Part
from tests.record.scores import programs, scores
from tests.record.tasks import tasks

PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("tasks", tasks, bulky=True),
        Part("scores", scores, bulky=True),
        Part("programs", programs, bulky=True),
        Part("episodes", episodes, bulky=True),
        Part("judge_bodies", judge_bodies),
        Part("digests", digests),
        Part("routes", routes),
    )
}
