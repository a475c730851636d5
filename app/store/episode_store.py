"""The store of episodes that are played over HTTP by clients that send no history."""

from typing import Final

from sqlalchemy import Connection, delete, select, update

from app.domain.tasks import KeptEpisode
from app.ports.store import EpisodeStore
from app.store.database import Database
from app.store.part_tables import kept_episodes
from app.store.rows import decode, encode

KEPT_SECONDS: Final = 86_400
_CLEARED_AT_ONCE: Final = 8
"""With each new episode, so that old ones become fewer."""


class SqlEpisodeStore(EpisodeStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, session: str) -> KeptEpisode | None:
        return await self._database.read(lambda connection: _load(connection, session))

    async def begin(self, session: str, episode: KeptEpisode) -> KeptEpisode:
        return await self._database.write(
            lambda connection: _begin(connection, self._database, session, episode), f"episode {session}"
        )

    async def change(self, session: str, before: KeptEpisode, after: KeptEpisode) -> bool:
        return await self._database.write(
            lambda connection: _change(connection, self._database, session, before, after), f"episode {session}"
        )


def _load(connection: Connection, session: str) -> KeptEpisode | None:
    row = connection.execute(select(kept_episodes).where(kept_episodes.c.session == session)).mappings().one_or_none()
    return None if row is None else decode(KeptEpisode, row["body"])


def _begin(connection: Connection, database: Database, session: str, episode: KeptEpisode) -> KeptEpisode:
    now = database.read_lease_clock(connection)
    old = (
        select(kept_episodes.c.session)
        .where(kept_episodes.c.changed_at < now - KEPT_SECONDS * 1_000_000)
        .order_by(kept_episodes.c.changed_at)
        .limit(_CLEARED_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    sessions = list(connection.execute(old).scalars())
    if sessions:
        connection.execute(delete(kept_episodes).where(kept_episodes.c.session.in_(sessions)))
    row = {
        "session": session,
        "task_id": episode.task_id,
        "revision": episode.revision,
        "body": encode(episode),
        "changed_at": now,
    }
    connection.execute(database.insert_new(kept_episodes), row)
    return _load(connection, session) or episode


def _change(connection: Connection, database: Database, session: str, before: KeptEpisode, after: KeptEpisode) -> bool:
    values = {
        "revision": after.revision,
        "body": encode(after),
        "changed_at": database.read_lease_clock(connection),
    }
    here = (kept_episodes.c.session == session, kept_episodes.c.revision == before.revision)
    return connection.execute(update(kept_episodes).where(*here).values(values)).rowcount == 1
