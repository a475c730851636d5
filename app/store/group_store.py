"""The store of groups: each is stored once, in one transaction with the lease that it completes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sqlalchemy import Connection, exists, literal_column, select, union_all

from app.domain.groups import Group
from app.ports.store import GroupStore, GroupToStore, IdempotencyKey, KnownGroups
from app.store.batched_calls import BatchedCalls, split_by_size
from app.store.database import Database
from app.store.group_rows import (
    NOTHING_ENCODED,
    EncodedTexts,
    have_long_texts,
    load_groups,
)
from app.store.group_writes import add_groups, compare_key, find_pruned, finish_groups, mask_group
from app.store.part_tables import parts
from app.store.prepared_statements import PreparedStatement, is_among
from app.store.retention_tables import pruned_groups
from app.store.rows import filter_storable
from app.store.tables import groups

_CLAIMED = exists().where(
    parts.c.group_id == groups.c.group_id, parts.c.state == literal_column("'closed'"), parts.c.due.is_not(None)
)
"""It was gathered and has a scorer. Those who gather groups see to it that the scorer lives."""


@dataclass(frozen=True)
class _EncodedGroups:
    groups: Sequence[GroupToStore]
    encoded: EncodedTexts


class SqlGroupStore(GroupStore):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known_ids = BatchedCalls(self._find_known_ids)

    async def find(self, group_ids: Sequence[str]) -> dict[str, Group]:
        wanted = filter_storable(group_ids)
        if not wanted:
            return {}
        found = await self._database.read(lambda connection: load_groups(connection, groups.c.group_id.in_(wanted)))
        return {group.group_id: group for group in found}

    async def recall(self, group_ids: Sequence[str]) -> KnownGroups:
        wanted = filter_storable(group_ids)
        with self._database.open_operation("read", "SqlGroupStore.recall"):
            known = await self._known_ids.add(wanted) if wanted else []
        if not known:
            return KnownGroups({}, frozenset())
        return await self._database.read(lambda connection: _recall_groups(connection, known))

    async def add(self, groups: Sequence[GroupToStore], key: IdempotencyKey | None = None) -> list[Group]:
        """NotFound when the task of a group is not stored."""
        encoded = await _encode_long_texts(groups)
        if key is not None:
            return await self._database.write(
                lambda connection: add_groups(connection, self._database, groups, key, encoded), "groups"
            )
        if not groups:
            return []
        asked = _EncodedGroups(groups, encoded)
        return await self._database.write_shared("SqlGroupStore.add", self._add_all, asked, "groups")

    async def _find_known_ids(self, asked: Sequence[Sequence[str]]) -> list[list[str]]:
        return await self._database.read(lambda connection: _find_known_ids(connection, asked))

    def _add_all(self, connection: Connection, asked: Sequence[_EncodedGroups]) -> list[list[Group]]:
        encoded = EncodedTexts.join(one.encoded for one in asked)
        groups = [one.groups for one in asked]
        return split_by_size(add_groups(connection, self._database, list(chain(*groups)), None, encoded), groups)

    async def finish(self, groups: Sequence[GroupToStore]) -> list[Group]:
        """NotFound when one of the groups was never added."""
        if not groups:
            return []
        encoded = await _encode_long_texts(groups)
        asked = _EncodedGroups(groups, encoded)
        return await self._database.write_shared("SqlGroupStore.finish", self._finish_all, asked, "groups")

    def _finish_all(self, connection: Connection, asked: Sequence[_EncodedGroups]) -> list[list[Group]]:
        encoded = EncodedTexts.join(one.encoded for one in asked)
        groups = [one.groups for one in asked]
        every = list(chain(*groups))
        if len({item.group.group_id for item in every}) < len(every):
            return [finish_groups(connection, self._database, items, encoded) for items in groups]
        return split_by_size(finish_groups(connection, self._database, every, encoded), groups)

    async def mask(self, group_id: str) -> Group:
        return await self._database.write(lambda connection: mask_group(connection, group_id), "groups")

    async def list_unfinished(self, limit: int) -> list[Group]:
        # The second term names the partial index.
        pending = (groups.c.outcome == "pending") & (groups.c.outcome != literal_column("'scored'"))
        if self._database.postgres:
            pending &= ~_CLAIMED
        return await self._database.read(lambda connection: load_groups(connection, pending, limit))

    async def check_key(self, key: IdempotencyKey) -> None:
        await self._database.read(lambda connection: compare_key(connection, key))


async def _encode_long_texts(items: Sequence[GroupToStore]) -> EncodedTexts:
    return await asyncio.to_thread(EncodedTexts.encode, items) if have_long_texts(items) else NOTHING_ENCODED


def _recall_groups(connection: Connection, group_ids: Sequence[str]) -> KnownGroups:
    stored = {group.group_id: group for group in load_groups(connection, groups.c.group_id.in_(group_ids))}
    return KnownGroups(stored, find_pruned(connection, [one for one in group_ids if one not in stored]))


_SELECT_KNOWN: Final = PreparedStatement(
    lambda postgres: union_all(
        select(groups.c.group_id).where(is_among(groups.c.group_id, "given", postgres)),
        select(pruned_groups.c.group_id).where(is_among(pruned_groups.c.group_id, "given", postgres)),
    )
)


def _find_known_ids(connection: Connection, asked: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of each list those of groups that are stored, or were once."""
    known = set(_SELECT_KNOWN.run(connection, given=list(chain(*asked))).scalars())
    return [[group_id for group_id in group_ids if group_id in known] for group_ids in asked]
