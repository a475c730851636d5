"""Episodes of OpenEnv's clients, and those whose connection has ended, so that they can go on."""

import time
from collections import OrderedDict
from dataclasses import dataclass

from app.domain.tasks import Message
from app.http.compat.openenv.resets import Reset
from app.service.request_models import HandedOutTask


@dataclass(frozen=True)
class OpenEnvEpisode:
    """An episode so far. `said` has all messages after the prompt."""

    task: HandedOutTask
    reset: Reset
    episode_id: str
    said: tuple[Message, ...] = ()
    steps: int = 0
    done: bool = False

    @property
    def turns_left(self) -> int:
        return 0 if self.done else self.task.max_turns - self.steps

    def advance(self, *messages: Message, done: bool = False) -> "OpenEnvEpisode":
        return OpenEnvEpisode(self.task, self.reset, self.episode_id, (*self.said, *messages), self.steps + 1, done)


@dataclass(frozen=True)
class _Dropped:
    episode: OpenEnvEpisode
    lost: bool
    at: float


class DroppedEpisodes:
    """Unfinished episodes whose connection has ended, by environment and caller. One per process; the oldest are
    forgotten first."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._kept: OrderedDict[tuple[str, str], _Dropped] = OrderedDict()

    def keep(self, owner: str, episode: OpenEnvEpisode, *, lost: bool) -> None:
        """`lost` if the client did not close the session. Of two episodes with the same id neither is kept."""
        key = (owner, episode.episode_id)
        if self._forget_old().pop(key, None) is None:
            self._kept[key] = _Dropped(episode, lost, time.monotonic())
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def take(self, owner: str, episode_id: str) -> OpenEnvEpisode | None:
        found = self._forget_old().pop((owner, episode_id), None)
        return None if found is None else found.episode

    def take_lost(self, owner: str, reset: Reset) -> OpenEnvEpisode | None:
        """The episode that a reset continues: its connection was lost, and the reset says the same as its first one or
        only names it. Any other episode with this id is forgotten."""
        found = self._forget_old().pop((owner, reset.episode_id or ""), None)
        same = found is not None and (reset.model_fields_set == {"episode_id"} or reset == found.episode.reset)
        return found.episode if found is not None and found.lost and same else None

    def _forget_old(self) -> OrderedDict[tuple[str, str], _Dropped]:
        oldest = time.monotonic() - self._seconds
        while self._kept and next(iter(self._kept.values())).at < oldest:
            self._kept.popitem(last=False)
        return self._kept
