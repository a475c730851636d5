"""Finds the rubric by which judges read a stored group, for those who want to see how its scores came about."""

import logging

from app.domain.errors import GatewayError
from app.domain.groups import GroupDetail
from app.domain.judging import Case, PanelResult, Rubric
from app.domain.runs import ScoringOptions
from app.ports.environment import Tools
from app.ports.judges import Panels
from app.ports.sandbox import Programs, Workers
from app.ports.store import RunStore
from app.service.judging import select_options
from app.service.sheet_versions import SheetVersions
from app.service.task_cache import TaskCache

log = logging.getLogger(__name__)


class _CaseFound(Exception):  # no error: it ends the scoring once its case is known
    def __init__(self, rubric: Rubric) -> None:
        super().__init__()
        self.rubric = rubric


class CaseProbe:
    """Stands for the panel and asks no judge: the environment's case is all that is wanted."""

    judges: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    digest = ""

    async def judge(self, case: Case) -> PanelResult:
        raise _CaseFound(case.rubric)


class RubricFinder:
    def __init__(
        self,
        sheet_versions: SheetVersions,
        panels: Panels,
        task_cache: TaskCache,
        runs: RunStore,
        workers: Workers,
        programs: Programs,
    ) -> None:
        self._sheet_versions = sheet_versions
        self._panels = panels
        self._task_cache = task_cache
        self._runs = runs
        self._tools = Tools(CaseProbe(), workers, programs)

    async def find(self, detail: GroupDetail, options: ScoringOptions | None = None) -> Rubric | None:
        """With the options of a later scoring, or those of the group's run. None where the task was made by another
        version or from other data, where nothing that judges read is kept, and where no judge is asked."""
        try:
            return await self._find(detail, options or await self._get_options(detail.group.run))
        except _CaseFound as found:
            return found.rubric
        except GatewayError as error:
            log.info("no rubric for group %s: %s", detail.group.group_id, error.detail)
        except Exception:
            log.exception("no rubric for group %s", detail.group.group_id)
        return None

    async def _get_options(self, run: str | None) -> ScoringOptions:
        known = None if run is None else await self._runs.get(run)
        return ScoringOptions() if known is None else known.options

    async def _find(self, detail: GroupDetail, options: ScoringOptions) -> Rubric | None:
        key, group = detail.task.key, detail.group
        hosted = await self._sheet_versions.get_version(key.environment, key.data_digest)
        environment = hosted.environment
        if environment.rubric is None or (environment.version, hosted.data_digest) != (key.version, key.data_digest):
            return None
        given = self._panels.resolve_options(hosted.name, select_options(environment, options)).rubric
        if given is not None or group.lacks_text:
            return given
        task = self._task_cache.get_task(hosted, detail.task)
        await environment.score(task, [rollout.completion for rollout in group.rollouts], self._tools)
        return None
