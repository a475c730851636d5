"""Scoring requests: retry identity, shared flights, durable before the reply, pending when time is up."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import TypeVar

from app.domain.errors import Conflict, RequestRefused, StoreUnavailable
from app.domain.groups import Group
from app.domain.parts import Part, PartRules
from app.ports.judges import Panels
from app.ports.runtime import Clock, Observer
from app.ports.sandbox import Programs, Workers
from app.ports.store import Groups, GroupToStore, IdempotencyKey, Parts, Tasks
from app.service.acceptance import Acceptance, Accepted
from app.service.catalogue import Catalogue
from app.service.editions import Editions
from app.service.flights import Flights
from app.service.gathering import Gathering
from app.service.judging import Judged, Scorer
from app.service.requests import GroupProblem, GroupReply, Scored, ScoreRequest
from app.service.runs import RunBook
from app.service.shelf import Shelf
from app.service.standing import owed, reply_of, scores_of, with_scores

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
RESUMED_AT_ONCE = 64
STORE_RETRY_SECONDS = (0.2, 1.0, 5.0)


WorkT = TypeVar("WorkT")

Flight = asyncio.Future[dict[str, Group]]
"""A scoring under way: its groups as they are stored when it ends."""


class ScoreDesk:
    def __init__(
        self,
        *,
        catalogue: Catalogue,
        editions: Editions,
        tasks: Tasks,
        shelf: Shelf,
        groups: Groups,
        parts: Parts,
        runs: RunBook,
        panels: Panels,
        workers: Workers,
        programs: Programs,
        observer: Observer,
        clock: Clock,
        rules: PartRules,
    ) -> None:
        self._catalogue = catalogue
        self._tasks = tasks
        self._shelf = shelf
        self._groups = groups
        self._runs = runs
        self._observer = observer
        self._acceptance = Acceptance(editions=editions, groups=groups, runs=runs, panels=panels, clock=clock)
        self._scorer = Scorer(editions, panels, shelf, workers, programs)
        self._flights = Flights[dict[str, Group]]("groups could not be stored")
        self.gathering = Gathering(
            parts=parts, groups=groups, flights=self._flights, take_up=self.take_up, observer=observer, rules=rules
        )

    async def score(
        self, request: ScoreRequest, environment: str | None = None, key: IdempotencyKey | None = None
    ) -> Scored:
        """Groups or problems in request order; what is in the reply as scored is committed."""
        if environment is not None:
            self._catalogue.hosted(environment)
        if key is not None:
            await self._groups.check_key(key)
        if request.run is not None:
            await self._runs.ensure(request.run)
        accepted = await self.accepted(request, environment)
        whole = [one for one in accepted if isinstance(one, Accepted) and one.part is None]
        pieces = [(one, one.part) for one in accepted if isinstance(one, Accepted) and one.part is not None]
        if pieces:
            stored, told = await self._beside(whole, pieces, request, key)
        else:
            stored, told = await self._stored(whole, request, key), []
        gathered = iter(told)
        replies: list[GroupReply | GroupProblem] = []
        for position, one in enumerate(accepted):
            if isinstance(one, GroupProblem):
                replies.append(one)
            elif one.part is None:
                replies.append(reply_of(stored[one.group.group_id]))
            else:
                replies.append(_placed(next(gathered), position))
        return Scored(groups=tuple(replies))

    async def _beside(
        self,
        whole: Sequence[Accepted],
        pieces: Sequence[tuple[Accepted, Part]],
        request: ScoreRequest,
        key: IdempotencyKey | None,
    ) -> tuple[dict[str, Group], list[GroupReply | GroupProblem]]:
        """Whole groups, and pieces of others meanwhile."""
        if key is not None:  # before anything takes a place that another body under this key must not
            await self._groups.add([], key)
        arriving = asyncio.gather(*(self.gathering.arrived(one, part, request.wait_seconds) for one, part in pieces))
        return await asyncio.gather(self._stored(whole, request, key), arriving)

    async def collect(self, identities: Sequence[str], wait_seconds: float) -> dict[str, Group]:
        """Groups by id as they are stored, after waiting for those that are still pending."""
        end = asyncio.get_running_loop().time() + wait_seconds
        while True:
            groups = await self.gathering.standing(identities)
            left = end - asyncio.get_running_loop().time()
            pending = [identity for identity, group in groups.items() if group.outcome == "pending"]
            if not pending or left <= 0:
                return groups
            flights = set(self._flights.of(pending).values())
            if flights:
                await asyncio.wait(flights, timeout=left)
            else:
                await asyncio.sleep(min(left, POLL_SECONDS))

    async def resume(self) -> None:
        """Takes up accepted work that a restart interrupted, a few groups at a time."""
        met: set[str] = set()
        while True:
            met.update(self._flights.names)
            unfinished = await self._groups.unfinished(RESUMED_AT_ONCE + len(met))
            groups = [group for group in unfinished if group.group_id not in met]
            if not groups:
                return
            met.update(group.group_id for group in groups)
            if started := await self.take_up(groups):
                await asyncio.wait(started)

    async def take_up(self, groups: Sequence[Group]) -> list[Flight]:
        """Scores groups that are stored as pending, except those that somebody here is scoring already."""
        records = await self._shelf.get([group.task_id for group in groups])
        started = []
        for group in groups:
            one = await self._acceptance.resumed(group, records[group.task_id])
            if not self._flights.of([group.group_id]):
                started.append(self._finish_behind(one, asyncio.ensure_future(self._judged(one))))
        return started

    async def close(self) -> None:
        """Lets go of what is still being scored: it is in the store as pending and taken up at the next start."""
        await self._flights.close()

    async def accepted(self, request: ScoreRequest, environment: str | None) -> list[Accepted | GroupProblem]:
        records = await self._shelf.get(list({group.task_id for group in request.groups}))
        lease_ids = [group.lease_id for group in request.groups if group.lease_id is not None]
        leases = await self._tasks.leases(lease_ids) if lease_ids else {}
        accepted: list[Accepted | GroupProblem] = []
        for position, asked in enumerate(request.groups):
            try:
                accepted.append(await self._acceptance.accept(request, asked, records, leases, environment))
            except Conflict:
                raise
            except RequestRefused as error:
                self._observer.refused(environment or "mix", error.code)
                field = None if error.field is None else f"groups[{position}].{error.field}"
                accepted.append(GroupProblem(task_id=asked.task_id, code=error.code, detail=error.detail, field=field))
        return accepted

    async def _stored(
        self, accepted: Sequence[Accepted], request: ScoreRequest, key: IdempotencyKey | None
    ) -> dict[str, Group]:
        """Every accepted group as it is in the store when the reply is due."""
        due = None if request.wait_seconds is None else asyncio.get_running_loop().time() + request.wait_seconds
        unique = {one.group.group_id: one for one in accepted}
        # On both sides of the read, which may see nothing of a flight that lands meanwhile.
        joined = self._flights.of(unique)
        known = await self._groups.find(list(unique))
        joined |= self._flights.of(unique)
        stored = {identity: group for identity, group in known.items() if group.outcome == "scored"}
        own = [one for identity, one in unique.items() if identity not in stored and identity not in joined]
        if own or key is not None:
            landing = self._land(own, known, request.wait_seconds, key)
            stored |= await asyncio.shield(self._flights.begin([one.group.group_id for one in own], landing))
        stored |= await self._joined(joined, due)
        waiting = [GroupToStore(one.group) for identity, one in unique.items() if identity not in stored]
        stored |= {group.group_id: group for group in await self._groups.add(waiting)} if waiting else {}
        return stored

    async def _joined(self, flights: dict[str, Flight], due: float | None) -> dict[str, Group]:
        """What other requests' flights brought until the loop's time is `due`. Whoever began a flight may have waited
        for a shorter time, so a group that came back without scores is followed to the flight that goes on behind."""
        brought: dict[str, Group] = {}
        while flights:
            left = None if due is None else max(0.0, due - asyncio.get_running_loop().time())
            done, _ = await asyncio.wait(set(flights.values()), timeout=left)
            if not done:
                break
            landed = {name: flight.result()[name] for name, flight in flights.items() if flight in done}
            brought |= landed
            flights = {name: flight for name, flight in flights.items() if flight not in done}
            flights |= self._flights.of(name for name, group in landed.items() if group.outcome != "scored")
        return brought

    async def _land(
        self,
        own: Sequence[Accepted],
        known: dict[str, Group],
        wait_seconds: float | None,
        key: IdempotencyKey | None,
    ) -> dict[str, Group]:
        """Scores what nobody else is scoring and writes it in one transaction; what takes longer goes on behind."""
        own = [_taken_up(one, known) for one in own]
        judging = await begun(self._judged(one) for one in own)
        try:
            return await self._landed(own, judging, known, wait_seconds, key)
        except BaseException:
            for future in judging:
                future.cancel()
            raise

    async def _landed(
        self,
        own: Sequence[Accepted],
        judging: Sequence[asyncio.Future[GroupToStore]],
        known: dict[str, Group],
        wait_seconds: float | None,
        key: IdempotencyKey | None,
    ) -> dict[str, Group]:
        if judging:
            await asyncio.wait(judging, timeout=wait_seconds)
        # Taken down now, since more may be done by the time these are written.
        in_time = [future.done() for future in judging]
        results = [
            future.result() if done else GroupToStore(owed(one.group))
            for one, future, done in zip(own, judging, in_time, strict=True)
        ]
        fresh = [result for result in results if result.group.group_id not in known]
        added = await self._groups.add(fresh, key) if fresh or key is not None else []
        stored = known | {group.group_id: group for group in added}
        stored |= await self._finished(results, stored)
        for one, future, done in zip(own, judging, in_time, strict=True):
            if not done:
                self._finish_behind(one, future)
        return stored

    async def _finished(self, results: Sequence[GroupToStore], stored: dict[str, Group]) -> dict[str, Group]:
        """Completes groups that the store holds otherwise than we now have them: retries, and those that another
        request put there as pending meanwhile."""
        ahead = [
            result
            for result in results
            if scores_of(stored[result.group.group_id]) != scores_of(result.group)
            and (result.group.outcome != "pending" or stored[result.group.group_id].outcome == "unscored")
        ]
        return {group.group_id: group for group in await self._groups.finish(ahead)} if ahead else {}

    def _finish_behind(self, one: Accepted, judging: asyncio.Future[GroupToStore]) -> Flight:
        return self._flights.begin([one.group.group_id], self._finish(one, judging))

    async def _finish(self, one: Accepted, judging: asyncio.Future[GroupToStore]) -> dict[str, Group]:
        result = await judging
        for pause in STORE_RETRY_SECONDS:
            try:
                return {one.group.group_id: (await self._groups.finish([result]))[0]}
            except StoreUnavailable:
                await asyncio.sleep(pause)
        log.error("a finished group could not be written and stays pending: %s", one.group.group_id)
        return {one.group.group_id: one.group}

    async def _judged(self, one: Accepted) -> GroupToStore:
        """Scores the rollouts that have no score yet."""
        began = asyncio.get_running_loop().time()
        group = one.group
        unscored = [rollout.completion for rollout in group.rollouts if rollout.score.outcome != "scored"]
        if one.refused is not None:
            judged = Judged((one.refused,) * len(unscored))
        else:
            judged = await self._scorer.judged(one.record, unscored, one.options, group.policy)
        self._observer.judged(judged.judgements)
        self._observer.scored(group.environment, judged.scores, asyncio.get_running_loop().time() - began)
        return GroupToStore(with_scores(group, judged.scores), judged.judgements)


async def begun(work: Iterable[Coroutine[None, None, WorkT]]) -> list[asyncio.Task[WorkT]]:
    """Each under way, begun in a pass of the event loop of its own: before its first wait a group may need
    milliseconds, and hundreds of them in one pass would stop everything else for seconds."""
    tasks = []
    try:
        for one in work:
            tasks.append(asyncio.ensure_future(one))
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    return tasks


def _placed(reply: GroupReply | GroupProblem, position: int) -> GroupReply | GroupProblem:
    """A problem says which of the request's groups it is about."""
    if isinstance(reply, GroupReply) or reply.field is None:
        return reply
    return reply.model_copy(update={"field": f"groups[{position}].{reply.field}"})


def _taken_up(one: Accepted, known: dict[str, Group]) -> Accepted:
    """A retry goes on with the group as it is stored, under the flags of both."""
    stored = known.get(one.group.group_id)
    if stored is None:
        return one
    flags = tuple(dict.fromkeys((*stored.flags, *one.group.flags)))
    return Accepted(stored.model_copy(update={"flags": flags}), one.record, one.options)
