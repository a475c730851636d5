"""The store of people's labels."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, select, update

from app.domain.digests import digest
from app.domain.errors import Conflict, NotFound
from app.domain.labels import Label, LabelledGroupRecord, QueueDraw
from app.ports.labelling import LabelStore
from app.store.database import Database
from app.store.inserts import insert_rows
from app.store.label_queue import is_taken, lock_group, require_lease, set_lease_state
from app.store.label_rows import build_label_row, load_records, parse_label, parse_lease
from app.store.label_tables import label_leases, labels
from app.store.rows import is_storable, to_micros

_ORDER = "labels"
_TRIES = 3
"""Another replica may take what was given up."""


class SqlLabelStore(LabelStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, label: Label, lease_id: str | None, *, merge: bool, show_judge: bool) -> Label:
        return await self._database.write(
            lambda connection: _put_label(connection, self._database, label, lease_id, merge, show_judge), _ORDER
        )

    async def withdraw(self, label_id: str, labeller: str, seconds: float) -> Label:
        def write(connection: Connection) -> Label:
            expiry = self._database.read_lease_clock(connection) + round(seconds * 1e6)
            return _withdraw_label(connection, label_id, labeller, expiry)

        return await self._database.write(write, _ORDER)

    async def find(self, label_id: str) -> Label | None:
        if not is_storable(label_id):
            return None
        wanted = select(labels.c.body).where(labels.c.label_id == label_id)
        body = await self._database.read(lambda connection: connection.execute(wanted).scalar())
        return None if body is None else parse_label(body)

    async def add_imported(self, imported: Sequence[Label]) -> list[str]:
        return await self._database.write(lambda connection: _add_imported(connection, self._database, imported))

    async def replace_choice(self, labeller: str, chat: str, choice: Label | None) -> None:
        await self._database.write(
            lambda connection: _replace_choice(connection, self._database, labeller, chat, choice), f"{_ORDER} {chat}"
        )

    async def list_labels(
        self, environment: str | None, run: str | None, after: int, limit: int
    ) -> list[tuple[int, Label]]:
        wanted = [labels.c.state == "live", labels.c.sequence > after]
        wanted += [] if environment is None else [labels.c.environment == environment]
        wanted += [] if run is None else [labels.c.run == run]
        page = select(labels.c.sequence, labels.c.body).where(*wanted).order_by(labels.c.sequence).limit(limit)

        def load(connection: Connection) -> list[tuple[int, Label]]:
            return [(sequence, parse_label(body)) for sequence, body in connection.execute(page)]

        return await self._database.read(load)

    async def list_of_group(self, group_id: str, limit: int) -> list[Label]:
        if not is_storable(group_id):
            return []
        live = select(labels.c.body).where(labels.c.group_id == group_id, labels.c.state == "live")
        newest = live.order_by(labels.c.sequence.desc()).limit(limit)

        def load_newest(connection: Connection) -> list[Label]:
            return [parse_label(body) for body in connection.execute(newest).scalars()]

        return await self._database.read(load_newest)

    async def count_labels(self) -> dict[str, int]:
        counted = select(labels.c.kind, func.count()).where(labels.c.state == "live").group_by(labels.c.kind)
        return await self._database.read(lambda connection: {kind: n for kind, n in connection.execute(counted)})

    async def find_mark(self, environment: str) -> tuple[int, int]:
        live = func.count().filter(labels.c.state == "live")
        wanted = select(func.coalesce(func.max(labels.c.sequence), 0), live).where(labels.c.environment == environment)

        def load(connection: Connection) -> tuple[int, int]:
            newest, count = connection.execute(wanted).one()
            return newest, count

        return await self._database.read(load)

    async def list_labelled(
        self, judge: str, environments: Sequence[str], run: str | None
    ) -> list[LabelledGroupRecord]:
        return await self._database.read(lambda connection: load_records(connection, judge, environments, run))


def _put_label(
    connection: Connection, database: Database, label: Label, lease_id: str | None, merge: bool, show_judge: bool
) -> Label:
    lock_group(connection, label.group_id or "")
    former = _load_own(connection, label)
    draw = former.draw if former is not None else None
    if lease_id is not None:
        draw = _admit_lease(connection, label, lease_id, database.read_lease_clock(connection))
    made = label.model_copy(update={"draw": draw, "kind": "own_pick" if draw is None else "queue"})
    if former is not None and merge:
        made = _merge_labels(former, made)
    shown = show_judge and draw is not None and not _waits_for_others(connection, database, label)
    if former is not None and _says_the_same(former, made, merge=merge):
        if former.saw_judge or not shown:
            return former
        made = made.model_copy(update={"seconds": former.seconds})
    elif former is not None and former.saw_judge:
        raise Conflict("you have seen the judge's scores of this item, so its label stays as it is")
    return _replace_label(connection, former, made.model_copy(update={"saw_judge": shown}))


def _replace_label(connection: Connection, former: Label | None, label: Label) -> Label:
    if former is not None:
        here = labels.c.label_id == former.label_id
        connection.execute(update(labels).where(here).values(state="replaced"))
    insert_rows(connection, labels, [build_label_row(label)])
    if label.draw is not None:
        set_lease_state(connection, label.draw.lease_id, "done")
    return label


def _load_own(connection: Connection, label: Label) -> Label | None:
    here = (labels.c.group_id == label.group_id, labels.c.labeller == label.labeller, labels.c.state == "live")
    body = connection.execute(select(labels.c.body).where(*here)).scalar()
    return None if body is None else parse_label(body)


def _says_the_same(former: Label, label: Label, *, merge: bool) -> bool:
    """Whether the label is the former one again, as where its reply was lost. Where it adds to the former one, its
    seconds are added already."""
    aside = {"label_id", "created_at", "saw_judge"} | ({"seconds"} if merge else set())
    return former.model_dump(exclude=aside) == label.model_dump(exclude=aside)


def _admit_lease(connection: Connection, label: Label, lease_id: str, now: int) -> QueueDraw:
    """A lease that has run out still counts if nobody else has taken the item since."""
    lease = require_lease(connection, lease_id, label.labeller)
    if lease.group_id != label.group_id:
        raise Conflict("this item is another group", field="lease_id")
    late = to_micros(lease.expires_at) <= now
    if lease.state in {"skipped", "expired"} or (lease.state == "live" and late and is_taken(connection, lease, now)):
        raise Conflict(
            "the time for this item is over and it went to somebody else; ask for the next one", field="lease_id"
        )
    return lease.draw


def _merge_labels(former: Label, label: Label) -> Label:
    """The former label with what is new of single replies."""
    replies = dict(former.replies)
    for rollout_id, new in label.replies.items():
        old = replies.get(rollout_id)
        if old is not None:
            levels = {**old.levels, **new.levels}
            new = new.model_copy(update={"levels": levels, "defect": old.defect if new.defect is None else new.defect})
        replies[rollout_id] = new
    seconds = None if label.seconds is None and former.seconds is None else (former.seconds or 0) + (label.seconds or 0)
    said = {"order": label.order or former.order, "comment": label.comment or former.comment}
    return label.model_copy(update={"replies": replies, "seconds": seconds, **said})


def _waits_for_others(connection: Connection, database: Database, label: Label) -> bool:
    """Whether somebody else holds the item or is still to label it."""
    now = database.read_lease_clock(connection)
    here = select(label_leases).where(label_leases.c.group_id == label.group_id)
    leases = [parse_lease(row) for row in connection.execute(here).mappings()]
    held = any(
        one.labeller != label.labeller and one.state == "live" and to_micros(one.expires_at) > now for one in leases
    )
    others = [one for one in leases if one.labeller != label.labeller]
    wanted = max((one.wanted for one in leases), default=1)
    return held or sum(one.state == "done" for one in others) + 1 < wanted


def _load_live(connection: Connection, label_id: str) -> Label | None:
    here = (labels.c.label_id == label_id, labels.c.state == "live")
    body = connection.execute(select(labels.c.body).where(*here)).scalar() if is_storable(label_id) else None
    return None if body is None else parse_label(body)


def _withdraw_label(connection: Connection, label_id: str, labeller: str, expiry: int) -> Label:
    found = _load_live(connection, label_id)
    if found is not None and found.group_id is not None:
        lock_group(connection, found.group_id)  # before anything else, as where a label is stored
        found = _load_live(connection, label_id)
    if found is None or found.labeller != labeller:
        raise NotFound(f"{labeller} has no label {label_id!r}")
    if found.saw_judge:
        raise Conflict("you have seen the judge's scores of this item, so its label stays as it is")
    connection.execute(update(labels).where(labels.c.label_id == label_id).values(state="withdrawn"))
    if found.draw is not None:
        lease = label_leases.c.lease_id == found.draw.lease_id
        connection.execute(update(label_leases).where(lease).values(state="live", expires_at=expiry))
    return found.model_copy(update={"state": "withdrawn"})


def _add_imported(connection: Connection, database: Database, imported: Sequence[Label]) -> list[str]:
    """The ids of those that are new: what says the same is stored once."""
    return [one.label_id for one in imported if _insert_choice(connection, database, one, compute_source_digest(one))]


def _insert_choice(connection: Connection, database: Database, label: Label, source_digest: str) -> bool:
    """Whether no label has the digest yet."""
    row = build_label_row(label) | {"source_digest": source_digest}
    return connection.execute(database.insert_new(labels).returning(labels.c.label_id), row).first() is not None


def _replace_choice(connection: Connection, database: Database, labeller: str, chat: str, choice: Label | None) -> None:
    """All choices of a labeller in a chat have one digest, which only one label has at a time: what is withdrawn gives
    it up. So replicas do not leave two."""
    shared = digest(["chat", labeller, chat])
    here = labels.c.source_digest == shared
    former = connection.execute(select(labels.c.body).where(here, labels.c.state == "live")).scalar()
    if former is not None and choice is not None and parse_label(former).choice == choice.choice:
        return
    for _ in range(_TRIES):
        connection.execute(update(labels).where(here).values(state="withdrawn", source_digest=None))
        if choice is None or _insert_choice(connection, database, choice, shared):
            return
    raise Conflict("the choice was changed elsewhere at the same moment; choose again")


def compute_source_digest(label: Label) -> str:
    """Of what was chosen in which conversation, wherever the file lies. A turn of a chat is the same one where more
    replies were offered later, as in a branch."""
    choice = label.choice
    assert choice is not None  # noqa: S101
    prompt = [[one.role, one.content] for one in choice.prompt]
    return digest([label.kind, prompt, choice.chosen, sorted(choice.rejected) if label.kind == "pair" else []])
