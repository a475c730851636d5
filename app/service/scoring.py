"""Score requests: each group is accepted, scored whole or put together from its pieces, and answered in order."""

import asyncio
from collections.abc import Sequence

from app.domain.errors import Gone
from app.domain.groups import Group
from app.domain.parts import GroupPart
from app.domain.retention import describe_pruned
from app.ports.store import GroupStore, IdempotencyKey
from app.ports.tracing import note_work
from app.service.catalogue import Catalogue
from app.service.group_assembly import GroupAssembler
from app.service.group_scoring import GroupScoring, build_reply
from app.service.request_models import GroupProblem, GroupReply, ScoreRequest, ScoreResponse
from app.service.run_registry import RunRegistry
from app.service.score_validation import AcceptedGroup, ScoreValidator

POLL_SECONDS = 0.2


class ScoringService:
    def __init__(
        self,
        *,
        catalogue: Catalogue,
        runs: RunRegistry,
        validator: ScoreValidator,
        scoring: GroupScoring,
        assembler: GroupAssembler,
        groups: GroupStore,
    ) -> None:
        self._catalogue = catalogue
        self._runs = runs
        self._validator = validator
        self._scoring = scoring
        self._assembler = assembler
        self._groups = groups

    async def score(
        self, request: ScoreRequest, environment: str | None = None, key: IdempotencyKey | None = None
    ) -> ScoreResponse:
        """Groups or problems in request order; what is in the reply as scored is committed."""
        note_work(environment, request.run)
        if environment is not None:
            self._catalogue.get_environment_or_current(environment)
        if key is not None:
            await self._groups.check_key(key)
        accepted = await self._validator.validate(request, environment)
        if request.run is not None:
            await self._runs.ensure(request.run)
        whole = [one for one in accepted if isinstance(one, AcceptedGroup) and one.part is None]
        pieces = [(one, one.part) for one in accepted if isinstance(one, AcceptedGroup) and one.part is not None]
        if pieces:
            stored, assembled = await self._score_with_pieces(whole, pieces, request, key)
        else:
            stored, assembled = await self._scoring.score(whole, request.wait_seconds, key), []
        remaining = iter(assembled)
        replies: list[GroupReply | GroupProblem] = []
        for position, one in enumerate(accepted):
            if isinstance(one, GroupProblem):
                replies.append(one)
            elif one.part is None:
                replies.append(_build_reply(one, stored))
            else:
                replies.append(_name_group(next(remaining), position))
        return ScoreResponse(groups=tuple(replies))

    async def collect(self, identities: Sequence[str], wait_seconds: float) -> dict[str, Group]:
        """Groups by id as they are stored, after waiting for those that are still pending."""
        end = asyncio.get_running_loop().time() + wait_seconds
        while True:
            groups = await self._assembler.find_groups(identities)
            left = end - asyncio.get_running_loop().time()
            pending = [identity for identity, group in groups.items() if group.outcome == "pending"]
            if not pending or left <= 0:
                return groups
            running = set(self._scoring.find_running(pending).values())
            if running:
                await asyncio.wait(running, timeout=left)
            else:
                await asyncio.sleep(min(left, POLL_SECONDS))

    async def _score_with_pieces(
        self,
        whole: Sequence[AcceptedGroup],
        pieces: Sequence[tuple[AcceptedGroup, GroupPart]],
        request: ScoreRequest,
        key: IdempotencyKey | None,
    ) -> tuple[dict[str, Group], list[GroupReply | GroupProblem]]:
        """Whole groups, and pieces of others meanwhile."""
        if key is not None:  # before anything takes a place that another body under this key must not
            await self._groups.add([], key)
        arriving = asyncio.gather(*(self._assembler.add_piece(one, part, request.wait_seconds) for one, part in pieces))
        return await asyncio.gather(self._scoring.score(whole, request.wait_seconds, key), arriving)


def _build_reply(one: AcceptedGroup, stored: dict[str, Group]) -> GroupReply | GroupProblem:
    """A problem where the group was scored long ago and is pruned since."""
    group = stored.get(one.group.group_id)
    if group is not None:
        return build_reply(group)
    return GroupProblem(task_id=one.group.task_id, code=Gone.code, detail=describe_pruned(one.group.group_id))


def _name_group(reply: GroupReply | GroupProblem, position: int) -> GroupReply | GroupProblem:
    """A problem names the request's group that it is about."""
    if isinstance(reply, GroupReply) or reply.field is None:
        return reply
    return reply.model_copy(update={"field": f"groups[{position}].{reply.field}"})
