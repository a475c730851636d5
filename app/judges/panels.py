"""The configured panels: which judges score which environment, with which options."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

from app.domain.errors import InvalidRequest
from app.domain.judging import JudgeReport
from app.domain.rubrics import OwnRubric
from app.domain.runs import PanelOptions, ScoringOptions
from app.judges.caching_judge import FreshJudge
from app.judges.deadline import JUDGING_SECONDS
from app.judges.listwise import MOST_READINGS
from app.judges.offline import NAME as OFFLINE
from app.judges.offline import OfflineJudge
from app.judges.panel import JudgePanel
from app.judges.rubric_files import build_sound_rubric, require_sound_rubric
from app.ports.judges import Judge, Panel, Panels, RepeatingJudge, ReportingJudge

DEFAULTS: Final = PanelOptions(mode="listwise", votes=1, judges=(OFFLINE,), relative_weight=0.5)
"""Used where neither the run nor the settings set an option."""

CALIBRATION_SHARES: Final[Mapping[int, float]] = {1: 0.01, 2: 0.02, 4: 0.025}
"""By readings, where neither sets a share: a reading beside references takes a hundredth of what readings take."""

PANELS_KEPT: Final = 1000


class ConfiguredPanels:
    """`defaults` holds options by environment; `fallback` names the judges where they name none. The offline judge is
    always available. ValueError for an unknown judge."""

    def __init__(
        self,
        judges: Mapping[str, Judge],
        defaults: Mapping[str, ScoringOptions],
        *,
        fallback: Sequence[str] = DEFAULTS.judges,
        self_judging: Collection[str] = (),
        judging_seconds: float = JUDGING_SECONDS,
    ) -> None:
        self._judges: dict[str, Judge] = {OFFLINE: OfflineJudge(), **judges}
        self._defaults = dict(defaults)
        self._fallback = DEFAULTS.model_copy(update={"judges": tuple(fallback)})
        self._self_judging = frozenset(self_judging)
        self._judging_seconds = judging_seconds
        self._made = lru_cache(maxsize=PANELS_KEPT)(self._create_panel)
        if not isinstance(self._judges[OFFLINE], OfflineJudge):
            raise ValueError(f"{OFFLINE!r} is the name of the built-in offline judge; choose another name")
        named = {"fallback": self._fallback.judges, **{name: said.judges for name, said in self._defaults.items()}}
        for where, names in named.items():
            unknown = sorted(set(names) - set(self._judges))
            if unknown:
                raise ValueError(f"{where}: there is no judge {unknown[0]!r}")
        for where in self._defaults:
            if problem := self._find_repeated_votes(self.resolve_options(where, ScoringOptions())):
                raise ValueError(f"{where}: {problem}")

    @property
    def judges(self) -> Mapping[str, Judge]:
        return self._judges

    def resolve_options(self, environment: str, options: ScoringOptions) -> PanelOptions:
        chosen, share = self._fallback, None
        for said in (self._defaults.get(environment, ScoringOptions()), options):
            share = share if said.calibration_share is None else said.calibration_share
            chosen = PanelOptions(
                mode=said.mode or chosen.mode,
                votes=said.votes or chosen.votes,
                judges=said.judges or chosen.judges,
                readings=said.readings or chosen.readings,
                relative_weight=chosen.relative_weight if said.relative_weight is None else said.relative_weight,
                rubric=chosen.rubric if said.rubric is None else build_sound_rubric(said.rubric),
            )
        share = CALIBRATION_SHARES[chosen.readings or MOST_READINGS] if share is None else share
        return chosen.model_copy(update={"judges": tuple(dict.fromkeys(chosen.judges)), "calibration_share": share})

    def build_panel(self, environment: str, options: ScoringOptions) -> Panel:
        return self._made(environment, options)

    def build_fresh_panel(self, environment: str, options: ScoringOptions) -> Panel:
        return self._create_panel(environment, options, fresh=True)

    def check_rubric(self, rubric: OwnRubric, field: str) -> None:
        require_sound_rubric(rubric, field)

    def refuses_self_judging(self, judge: str) -> bool:
        return judge not in self._self_judging

    def _create_panel(self, environment: str, options: ScoringOptions, *, fresh: bool = False) -> Panel:
        chosen = self.resolve_options(environment, options)
        judges: tuple[Judge, ...] = self._select_judges(chosen.judges)
        judges = tuple(map(FreshJudge, judges)) if fresh else judges
        if problem := self._find_repeated_votes(chosen):
            raise InvalidRequest(problem, field="options.votes")
        return JudgePanel(
            judges,
            chosen.relative_weight,
            chosen.mode,
            chosen.votes,
            readings=chosen.readings,
            seconds=self._judging_seconds,
            rubric=chosen.rubric,
        )

    def _find_repeated_votes(self, chosen: PanelOptions) -> str:
        """Why the votes would be one and the same; empty if they are not, or are not used."""
        if chosen.votes == 1 or chosen.mode == "listwise":
            return ""
        found = [self._judges[name] for name in chosen.judges]
        repeating = [judge.name for judge in found if isinstance(judge, RepeatingJudge) and judge.repeats_itself]
        if not repeating:
            return ""
        return (
            f"{chosen.votes} votes of judge {repeating[0]!r} would be the same answer to the same request, since its "
            "temperature is 0; give it a higher one (`temperature` in the settings), or take 1 vote"
        )

    def _select_judges(self, names: Sequence[str]) -> tuple[Judge, ...]:
        unknown = [name for name in names if name not in self._judges]
        if unknown:
            known = ", ".join(sorted(self._judges))
            raise InvalidRequest(f"there is no judge {unknown[0]!r}; there are {known}", field="options.judges")
        return tuple(self._judges[name] for name in names)


def collect_reports(panels: Panels) -> dict[str, JudgeReport]:
    """By judge name, for the judges that report."""
    return {name: judge.report() for name, judge in panels.judges.items() if isinstance(judge, ReportingJudge)}
