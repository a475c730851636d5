"""What a trainer, a dashboard and a person at the viewer ask of a store, whatever its size."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, get_args

import httpx

from app.domain.groups import GroupOrder
from benchmarks.seeded_stores import ARENA, ARENA_RUN, LONG_RUN, MIXED_RUN, Answers
from tests.support.serving import Served

WORLD: Final = "growth"
EVENTS: Final = tuple(
    {
        "id": f"event-{number}",
        "time": f"1312-04-{1 + number // 24:02}T{number % 24:02}:00:00Z",
        "text": f"The ferry crossed for the {number}th time, and the river guild asked for its toll.",
        "importance": number % 11,
    }
    for number in range(200)
)
"""The same in both stores."""
POLICY: Final = {
    "ATROPOS_ENVS_POLICIES__NOBODY__BASE_URL": "http://127.0.0.1:9/v1",
    "ATROPOS_ENVS_POLICIES__NOBODY__MODEL": "nobody",
}
"""Which nobody asks: without one there is nothing to be seen of the page on which people talk."""


@dataclass
class Side:
    """A store, served, with what requests name of it."""

    gateway: Served
    groups: Sequence[tuple[int, str, str, str]]
    """Some, drawn at random: sequence, id, task and environment."""
    character: str
    newest: int
    late: int
    """When nineteen of twenty were scored, in microseconds."""
    answers: Answers = field(default_factory=lambda: Answers(2))
    chance: random.Random = field(default_factory=lambda: random.Random(3))
    client: httpx.Client = field(init=False)
    is_warm: bool = False
    """Whether each address is asked once before it is measured, so that nothing of it has to come from the disk."""

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.gateway.url, timeout=120)

    @property
    def deep(self) -> int:
        """A place somewhere in the older half."""
        return self.chance.randrange(self.newest // 10, self.newest // 2)

    def tell_world(self) -> None:
        """What was told already stays as it is."""
        told = self.client.post(f"/worlds/{WORLD}/events", json={"events": EVENTS})
        entry = {"id": "toll", "keys": ["toll", "guild"], "content": "The guild takes a copper of each fare."}
        book = self.client.put(f"/worlds/{WORLD}/lorebooks/river", json={"entries": [entry]})
        for reply in (told, book):
            reply.raise_for_status()

    def draw(self, environment: str | None = None) -> tuple[int, str, str, str]:
        return self.chance.choice([one for one in self.groups if environment in (None, one[3])])

    def count_reads(self) -> tuple[int, int]:
        """How often the gateway has read so far, files and sockets, and how many bytes of that from the disk."""
        lines = Path(f"/proc/{self.gateway.process.pid}/io").read_text().splitlines()
        counts = dict(line.split(": ", 1) for line in lines)
        return int(counts["syscr"]), int(counts["read_bytes"])

    def measure_memory(self) -> dict[str, float]:
        """Megabytes of the gateway's own process."""
        lines = Path(f"/proc/{self.gateway.process.pid}/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return {name: int(sizes[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}


Path_ = Callable[[Side], str]

LISTS: Final[dict[str, Path_]] = {
    "GET /groups": lambda _: "/groups",
    "GET /groups?env=": lambda _: "/groups?env=mcqa",
    "GET /groups?run=": lambda _: f"/groups?run={MIXED_RUN}",
    "GET /groups?run=&env=": lambda _: f"/groups?run={MIXED_RUN}&env=mcqa",
    "GET /groups?run=&env=, none": lambda _: f"/groups?run={LONG_RUN}&env={ARENA}",
    "GET /groups?run=&outcome=, none": lambda _: f"/groups?run={LONG_RUN}&outcome=unscored",
    "GET /groups?outcome=unscored": lambda _: "/groups?outcome=unscored",
    "GET /groups?purpose=eval": lambda _: "/groups?purpose=eval",
    "GET /groups?run=&purpose=eval, none": lambda _: f"/groups?run={ARENA_RUN}&purpose=eval",
    "GET /groups?task_id=": lambda side: f"/groups?task_id={side.draw()[2]}",
    "GET /groups?before=": lambda side: f"/groups?before={side.deep}",
    "GET /groups?run=&before=": lambda side: f"/groups?run={LONG_RUN}&before={side.deep}",
    "GET /groups?env=&before=": lambda side: f"/groups?env={ARENA}&before={side.deep}",
    "GET /": lambda _: "/",
    "GET /view/groups?run=&environment=": lambda _: f"/view/groups?run={MIXED_RUN}&environment={ARENA}",
    "GET /view/groups?before=": lambda side: f"/view/groups?before={side.deep}",
}
PAGES: Final[dict[str, Path_]] = {
    "GET /groups/{id}, gsm8k": lambda side: f"/groups/{side.draw('gsm8k')[1]}",
    "GET /groups/{id}, npc_arena": lambda side: f"/groups/{side.draw(ARENA)[1]}",
    "GET /view/groups/{id}, npc_arena": lambda side: f"/view/groups/{side.draw(ARENA)[1]}",
    "GET /view/groups/{id}?run=&at=": lambda side: "/view/groups/{1}?run=mixed&at={0}".format(*side.draw()),
    "GET /groups?id=": lambda side: f"/groups?id={side.draw()[1]}",
    "GET /tasks/{id}": lambda side: f"/tasks/{side.draw()[2]}",
}
STATISTICS: Final[dict[str, Path_]] = {
    f"GET {path}": lambda _, path=path: path  # type: ignore[misc]
    for path in (
        *("/stats", f"/stats?env={ARENA}&run={ARENA_RUN}", "/stats?by=character", "/stats?by=judge"),
        *("/stats?judge=offline", "/runs", f"/runs/{LONG_RUN}", f"/runs/{ARENA_RUN}/health"),
        *("/view/stats", f"/view/stats?run={LONG_RUN}", "/judges", "/readyz", "/metrics"),
    )
}
VIEWER: Final[dict[str, Path_]] = {
    f"GET {path}": lambda _, path=path: path  # type: ignore[misc]
    for path in (
        *("/view/runs", "/view/runs?sort=-groups", f"/view/runs/{LONG_RUN}", f"/view/runs/{ARENA_RUN}"),
        *(f"/view/runs/{MIXED_RUN}?by=environment", f"/view/runs/{LONG_RUN}?with={MIXED_RUN}"),
        *(f"/view/runs/{ARENA_RUN}?by={word}" for word in ("label", "scene")),
        *(
            f"/view/runs/{ARENA_RUN}?chart=reward",
            "/view/characters",
            "/view/worlds",
            "/view/judges",
            "/view/atropos",
            "/view/author",
            "/sign-in",
        ),
        *("/view/label", "/view/label?labeller=ada", f"/view/label?labeller=ada&environment={ARENA}&run={ARENA_RUN}"),
        *("/view/talk", f"/view/worlds/{WORLD}", f"/view/worlds/{WORLD}/write"),
        *(f"/view/worlds/{WORLD}/events/event-7/edit", f"/view/worlds/{WORLD}/lorebooks/river/edit?line=toll"),
    )
}
COMPARED: Final[dict[str, Path_]] = {
    f"GET /view/compare?{words}": lambda _, words=words: f"/view/compare?{words}"  # type: ignore[misc]
    for words in (
        *("", f"first={ARENA_RUN}&first_steps=1&second_steps=8&judge=own", f"first={LONG_RUN}&second={MIXED_RUN}"),
        f"first={ARENA_RUN}&second={MIXED_RUN}&environment={ARENA}&judge=own",
    )
}
PREVIEWED: Final[dict[str, Path_]] = {
    f"GET /view/export?{words}": lambda _, words=words: f"/view/export?{words}"  # type: ignore[misc]
    for words in (
        *("", f"run={LONG_RUN}", f"run={MIXED_RUN}&environment={ARENA}&offline_judge=true&shape=dpo", "shape=labels"),
        *(f"run={LONG_RUN}&flag=nothing", "min_mean=0.9&shape=sft"),
    )
}
VIEWER_OF_SIDE: Final[dict[str, Path_]] = {
    "GET /view/characters/{id}": lambda side: f"/view/characters/{side.character}",
    "GET /view/characters/{id}?run=": lambda side: f"/view/characters/{side.character}?run={ARENA_RUN}",
    "GET /view/characters/{id}/edit": lambda side: f"/view/characters/{side.character}/edit",
    "GET /view/characters/{id}/scenes/edit": lambda side: f"/view/characters/{side.character}/scenes/edit",
    "GET /view/label?group=": lambda side: f"/view/label?group={side.draw(ARENA)[1]}",
    "GET /view/compare?label=": lambda side: (
        f"/view/compare?first={ARENA_RUN}&second={MIXED_RUN}&label={side.character}&judge=own"
    ),
    "GET /view/export?label=": lambda side: f"/view/export?label={side.character}&offline_judge=true",
    "GET /view/talk?character=": lambda side: f"/view/talk?character={side.character}&world={WORLD}",
    "GET /view/worlds/{world}/why": lambda side: f"/view/worlds/{WORLD}/why?character={side.character}&q=The+guild%3F",
    "GET /view/groups?label=": lambda side: f"/view/groups?label={side.character}",
    "GET /view/groups?label=&sort=-mean": lambda side: f"/view/groups?label={side.character}&sort=-mean",
    "GET /view/groups?task_id=": lambda side: f"/view/groups?task_id={side.draw()[2]}",
    "GET /view/groups?since=": lambda side: f"/view/groups?since={_tell_time(side.late)}",
    "GET /view/groups?until=": lambda side: f"/view/groups?until={_tell_time(side.late)}",
    "GET /view/groups?before=&flag=": lambda side: f"/view/groups?before={side.deep}&flag=truncated",
    "GET /view/groups/{id}?flag=&at=": lambda side: "/view/groups/{1}?flag=truncated&at={0}".format(*side.draw()),
}
FILTERS: Final[dict[str, Path_]] = {
    f"GET /view/groups?{words}": lambda _, words=words: f"/view/groups?{words}"  # type: ignore[misc]
    for words in (
        *(f"environment={ARENA}", f"run={MIXED_RUN}", "outcome=scored", "outcome=pending", "purpose=train"),
        *("judge=offline", "judge=nobody", "model=nobody", "flag=truncated", "flag=low_signal", "reason=judge_failed"),
        *("min_step=5&max_step=6", "min_mean=0.9", "max_mean=0.1", "min_std=0.4", "max_std=0.01"),
        *(f"run={LONG_RUN}&flag=nothing", f"environment={ARENA}&judge=nobody", "run=nobody", "label=nobody"),
        *(f"sort=-{order}" for order in get_args(GroupOrder)),
        f"run={MIXED_RUN}&environment={ARENA}&sort=std&min_step=2",
        *("text=thaw", "text=the", 'text="when the bells are done"', "text=nowhere", "text=thaw+river+guild"),
        *(f"run={LONG_RUN}&text=thaw", 'text="the the"', "text=thaw&sort=-std", "text=thaw&flag=nothing"),
    )
}
EXPORTS: Final[dict[str, Path_]] = {
    "GET /export": lambda _: "/export",
    "GET /export?run=": lambda _: f"/export?run={MIXED_RUN}",
    "GET /export?env=": lambda _: "/export?env=mcqa",
    "GET /export?run=&env=": lambda _: f"/export?run={MIXED_RUN}&env={ARENA}&offline_judge=true",
    "GET /export?label=": lambda side: f"/export?label={side.character}&offline_judge=true",
    "GET /export?purpose=eval": lambda _: "/export?purpose=eval",
    "GET /export?since=": lambda side: f"/export?since={_tell_time(side.late)}",
    "GET /export?run=&since=": lambda side: f"/export?run={LONG_RUN}&since={_tell_time(side.late)}",
    "GET /export?shape=dpo&run=": lambda _: f"/export?shape=dpo&run={LONG_RUN}",
    "GET /export?shape=sft&format=parquet": lambda _: "/export?shape=sft&format=parquet",
}


def _tell_time(micros: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros / 1e6))


ASKED: Final = PAGES | LISTS | STATISTICS | VIEWER | VIEWER_OF_SIDE | COMPARED | PREVIEWED | FILTERS
"""To the last byte."""
