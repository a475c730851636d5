"""Episodes of clients that send no history: one change at a time, on any replica, and for a day."""

import pytest

from app.domain.tasks import KeptEpisode, Message
from app.main.store import Store
from tests.support.store_cases import MovableClock, opened

SAID = Message(role="assistant", content="NUL \x00 and \U0001f9d9")
EPISODE = KeptEpisode(task_id="task_0")


@pytest.mark.dialects
async def test_of_two_changes_at_once_one_counts(store: Store, store_url: str) -> None:
    async with opened(store_url) as replica:
        first, other = await store.episodes.begin("a", EPISODE), await replica.episodes.begin("a", EPISODE)
        after = first.change(messages=(SAID,), last="digest")
        changed = [await store.episodes.change("a", first, after), await replica.episodes.change("a", other, after)]
        found = await replica.episodes.find("a")
    assert (first, changed, found) == (other, [True, False], after)


async def test_what_has_begun_is_not_begun_anew(store: Store) -> None:
    closed = await store.episodes.begin("a", KeptEpisode(task_id="", closed=True))
    assert (await store.episodes.begin("a", EPISODE), await store.episodes.find("b")) == (closed, None)


async def test_after_a_day_an_episode_is_forgotten(store: Store, clock: MovableClock) -> None:
    for name in ("old", "kept"):
        before = await store.episodes.begin(name, EPISODE)
    clock.forward(23 * 3600)
    assert await store.episodes.change("kept", before, before.change(last="digest"))
    clock.forward(2 * 3600)
    await store.episodes.begin("new", EPISODE)
    found = [await store.episodes.find(name) is not None for name in ("old", "kept", "new")]
    assert found == [False, True, True]
