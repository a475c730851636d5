"""Steps of multi-turn episodes, replayed from the transcript, so that any replica can serve any turn."""

from app.domain.errors import Conflict, InvalidRequest, NotFound
from app.domain.groups import TaskRecord
from app.domain.tasks import Turn
from app.service.catalogue import ServedEnvironment
from app.service.request_models import StepRequest
from app.service.sheet_versions import SheetVersions
from app.service.task_cache import TaskCache


class EpisodeStepper:
    def __init__(self, sheet_versions: SheetVersions, task_cache: TaskCache) -> None:
        self._sheet_versions = sheet_versions
        self._task_cache = task_cache

    async def step(self, environment: str, request: StepRequest) -> Turn:
        """The environment's answer to the last message. Conflict if the environment changed since the hand-out."""
        if not self._sheet_versions.get_current(environment).environment.multi_turn:
            raise InvalidRequest(f"{environment} is single-turn: send the completion to /score", field="messages")
        record = await self._load_record(environment, request.task_id)
        hosted = await self._sheet_versions.get_version(environment, record.key.data_digest)
        if not _is_current(hosted, record):
            raise Conflict("the environment has changed since the task was handed out", field="task_id")
        return hosted.environment.step(self._task_cache.get_task(hosted, record), request.messages)

    async def is_single_reply(self, environment: str, task_id: str) -> bool:
        """Whether the task takes a single reply. NotFound if it was not handed out."""
        if not self._sheet_versions.get_current(environment).environment.multi_turn:
            return True
        record = await self._load_record(environment, task_id)
        hosted = await self._sheet_versions.get_version(environment, record.key.data_digest)
        return not _is_current(hosted, record) or self._task_cache.get_task(hosted, record).max_turns == 1

    async def _load_record(self, environment: str, task_id: str) -> TaskRecord:
        record = (await self._task_cache.get([task_id])).get(task_id)
        if record is None or record.key.environment != environment:
            raise NotFound(f"task {task_id} was not handed out by {environment}", field="task_id")
        return record


def _is_current(hosted: ServedEnvironment, record: TaskRecord) -> bool:
    return (record.key.version, record.key.data_digest) == (hosted.environment.version, hosted.data_digest)
