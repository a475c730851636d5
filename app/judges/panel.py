"""Judges a group: gates first, then the judges, then one score per candidate."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final

from app.domain.calibration import CALIBRATION_SECONDS, ReferencePlan, References
from app.domain.digests import digest, digest_of_model
from app.domain.judging import (
    Case,
    Defect,
    JudgeFailure,
    Mode,
    PanelResult,
    Rubric,
)
from app.domain.rewards import build_criteria, combine, compute_absolute, find_cap
from app.domain.scores import Reason, Score
from app.judges.aggregation import CandidateGroup, GroupResult, JudgeView, average_values
from app.judges.capping_defects import collect_defects, settle_divided_caps
from app.judges.claims import attach_claim_notes
from app.judges.deadline import JUDGING_SECONDS, DeadlineJudge
from app.judges.gates.gate_registry import (
    GATES_DIGEST,
    Gate,
    list_confirmed_flags,
)
from app.judges.gates.group_check import GateResult, group_passed, run_gates_on_case
from app.judges.listwise import MOST_READINGS, read_listwise
from app.judges.offline import NAME as OFFLINE
from app.judges.pairwise import read_pairwise
from app.judges.pointwise import read_pointwise
from app.judges.questions import await_all
from app.judges.ranks import NEUTRAL, mean
from app.judges.reference_readings import ask_for_references, read_beside_references
from app.judges.reliability import stands_out
from app.judges.reward_models import REWARD_RUBRIC, read_rewards
from app.judges.text_normalisation import strip_thoughts
from app.ports.judges import CalibrationReading, Judge, WrittenReferences, gives_rewards

DISAGREEMENT_GAP: Final = 0.35
"""From this difference between two judges' rewards for a candidate they count as disagreeing."""
VERSION: Final = 10
"""Increase this when the same judgements would give different scores."""

_Reader = Callable[[Judge, CandidateGroup, int], Coroutine[None, None, GroupResult]]
_SEPARATE_READERS: Final[Mapping[Mode, _Reader]] = {"pairwise": read_pairwise, "pointwise": read_pointwise}
"""Modes in which each judge reads the group for itself. In `listwise` they share its orders."""

_REASONS: Final[Mapping[JudgeFailure | None, Reason]] = {"budget": "budget", "language": "language_unknown"}
_LONGEST_RATIONALE: Final = 600


class JudgePanel:
    """One or more judges in one mode. `votes` is how often each judge is asked the same, `readings` how often at most a
    group is read in `listwise`, `seconds` the time limit for a group. A `rubric` replaces those of the cases."""

    def __init__(
        self,
        judges: Sequence[Judge],
        relative_weight: float,
        mode: Mode = "listwise",
        votes: int = 1,
        *,
        readings: int | None = None,
        seconds: float = JUDGING_SECONDS,
        rubric: Rubric | None = None,
    ) -> None:
        self._judges = tuple(judges)
        self._rubric = rubric
        self._relative_weight = relative_weight
        self._mode = mode
        self._votes = votes
        self._readings = readings or MOST_READINGS
        self._seconds = seconds
        self.judges = tuple(judge.name for judge in judges)
        self.models = tuple(judge.model for judge in judges)
        self.digest = digest(
            {
                "mode": mode,
                "votes": votes,
                "readings": readings,
                "version": VERSION,
                "gates": GATES_DIGEST,
                "judges": [[judge.name, judge.digest] for judge in judges],
                "relative_weight": relative_weight,
                **({} if rubric is None else {"rubric": digest_of_model(rubric)}),
            }
        )

    async def judge(self, case: Case) -> PanelResult:
        if self._rubric is not None:
            case = case.model_copy(update={"rubric": self._rubric})
        seen = tuple(strip_thoughts(text) for text in case.candidates)
        noticed = await run_gates_on_case(case)
        failed = [each.failed for each in noticed]
        passed = group_passed(seen, noticed)
        reports: Sequence[GroupResult] = ()
        scores: Mapping[str, Score] = {}
        if passed:
            group = CandidateGroup.from_texts(
                case,
                passed,
                {text: each.own for text, each in passed.items()},
                {text: tuple(hint.notices for hint in each.hints) for text, each in passed.items()},
                dict(zip(seen, case.episodes, strict=True)) if case.episodes else {},
            )
            reports = await self._read_group(group)
            answered = _list_answering_judges(reports)
            flags = ("offline_judge",) if OFFLINE in answered else ()
            scores = {
                text: score.model_copy(
                    update={
                        "candidate": group.ids[text],
                        "judges": answered,
                        "flags": (
                            *score.flags,
                            *(hint.flag for hint in passed[text].hints),
                            *flags,
                        ),
                    }
                )
                for text, score in self._build_scores(group, reports, passed).items()
            }
        return PanelResult(
            scores=tuple(
                _build_gated_score(gates) if gates else scores[text] for text, gates in zip(seen, failed, strict=True)
            ),
            judgements=tuple(judgement for report in reports for judgement in report.judgements),
        )

    async def calibrate(
        self, case: Case, references: References, seconds: float = CALIBRATION_SECONDS
    ) -> CalibrationReading:
        """Reads the group once more, beside references. Only values that no reward depends on come of it."""
        readers = [judge for judge in self._judges if not gives_rewards(judge)]
        return await read_beside_references(readers, self._apply_rubric(case), references, seconds)

    async def write_references(self, plan: ReferencePlan, case: Case, policy: str | None) -> WrittenReferences | None:
        return await ask_for_references(self._judges, plan, self._apply_rubric(case), policy)

    def _apply_rubric(self, case: Case) -> Case:
        return case if self._rubric is None else case.model_copy(update={"rubric": self._rubric})

    @property
    def grades(self) -> bool:
        """Whether some judge reads by the rubric."""
        return not all(map(gives_rewards, self._judges))

    async def _read_group(self, group: CandidateGroup) -> Sequence[GroupResult]:
        bounded = [DeadlineJudge(judge, self._seconds) for judge in self._judges]
        rewarding = [judge for judge, own in zip(bounded, self._judges, strict=True) if gives_rewards(own)]
        reading = [judge for judge in bounded if judge not in rewarding]
        if not rewarding:
            return await self._read_by_rubric(reading, group)
        reports, rewards = await asyncio.gather(
            self._read_by_rubric(reading, group),
            asyncio.gather(*(read_rewards(judge, group) for judge in rewarding)),
        )
        return [*reports, *rewards]

    async def _read_by_rubric(self, judges: Sequence[Judge], group: CandidateGroup) -> Sequence[GroupResult]:
        if not judges:
            return ()
        if self._mode == "listwise":
            reports = await read_listwise(judges, group, self._relative_weight, self._readings)
        else:
            read = _SEPARATE_READERS[self._mode]
            reports = tuple(await await_all([read(judge, group, self._votes) for judge in judges]))
        by_name = {judge.name: judge for judge in judges}
        return await await_all(
            [settle_divided_caps(by_name[report.judge], group, report, self._mode, self._votes) for report in reports]
        )

    def _build_scores(
        self, group: CandidateGroup, reports: Sequence[GroupResult], passed: Mapping[str, GateResult]
    ) -> Mapping[str, Score]:
        views = [report.view for report in reports if report.view is not None]
        graders = [view for view in views if view.follows_rubric]
        if not views or (not graders and not all(map(gives_rewards, self._judges))):
            words = "; ".join(f"{report.judge}: {report.error}" for report in reports)
            return dict.fromkeys(group.texts, Score.unscored(_choose_reason(reports), words[:_LONGEST_RATIONALE]))
        flags = _list_group_flags(views, self._relative_weight, missing=len(views) < len(reports))
        values = [average_values(column) for column in zip(*(view.values for view in graders or views), strict=True)]
        standings = average_standings(views, len(group.texts))
        own = (*flags, "judges_disagree")
        disagreed = self._find_disagreements(graders, len(group.texts))
        return {
            text: self._build_score(
                group,
                views,
                place,
                values[place],
                standings[place],
                own if place in disagreed else flags,
                passed[text].hints,
            )
            for place, text in enumerate(group.texts)
        }

    def _build_score(
        self,
        group: CandidateGroup,
        views: Sequence[JudgeView],
        place: int,
        values: Mapping[str, float | None],
        standing: float,
        flags: Sequence[str],
        noticed: Sequence[Gate],
    ) -> Score:
        graders = [view for view in views if view.follows_rubric]
        rubric = group.case.rubric if graders else REWARD_RUBRIC
        criteria = build_criteria(rubric, values)
        absolute = compute_absolute(criteria)
        relative = absolute if len(group.texts) == 1 else standing
        defects = collect_defects(graders, place)
        leaked = list_confirmed_flags(noticed, defects.values(), rubric)
        gate, cap = 0.0 if leaked else 1.0, find_cap(rubric, defects.values())
        return Score(
            outcome="scored",
            reward=combine(gate, absolute, relative, self._relative_weight, cap),
            gate=gate,
            absolute=absolute,
            relative=relative,
            relative_weight=self._relative_weight,
            cap=cap if cap < 1.0 else None,
            criteria=attach_claim_notes(
                rubric, criteria, [verdict for view in graders for verdict in view.verdicts[place]]
            ),
            flags=tuple(dict.fromkeys((*leaked, *flags, *defects))),
            rationale=_compose_rationale(views, place, defects),
        )

    def _find_disagreements(self, views: Sequence[JudgeView], count: int) -> frozenset[int]:
        """The places of candidates, by what each judge says on average. Single readings differ more than means of two:
        so does the limit."""
        mixed = [
            (view, [(sample.judge, sample.mix(self._relative_weight)) for sample in view.samples]) for view in views
        ]
        if len({judge for view, _ in mixed for judges in view.judges for judge in judges}) < 2:
            return frozenset()
        return frozenset(place for place in range(count) if _judges_disagree(mixed, place))


def _judges_disagree(views: Sequence[tuple[JudgeView, Sequence[tuple[str, Sequence[float]]]]], place: int) -> bool:
    """`views` with what each of their samples would pay."""
    said: defaultdict[str, list[float]] = defaultdict(list)
    for view, mixed in views:
        for judge, paid in mixed:
            said[judge].append(paid[place])
        if not mixed:
            said[view.judges[place][0]].append(view.absolutes[place])
    rewards = [mean(listed) for listed in said.values()]
    if not rewards:
        return False
    fewest = min(map(len, said.values()))
    return max(rewards) - min(rewards) >= DISAGREEMENT_GAP * (math.sqrt(2) if fewest == 1 else 1.0)


def _list_answering_judges(reports: Sequence[GroupResult]) -> tuple[str, ...]:
    """The judges whose judgements count: for a refusal, the fallback."""
    made = (judgement for report in reports if report.view is not None for judgement in report.judgements)
    return tuple(dict.fromkeys(judgement.judge for judgement in made if judgement.error is None))


def _build_gated_score(gates: Sequence[Gate]) -> Score:
    words = "; ".join(gate.notices for gate in gates)
    return Score.gated(*(gate.flag for gate in gates), rationale=f"Not judged, because the reply {words}.")


def _choose_reason(reports: Sequence[GroupResult]) -> Reason:
    """The reason that all failures share, otherwise `judge_failed`."""
    failures = {made.failure for report in reports for made in report.judgements if made.error is not None}
    return _REASONS.get(failures.pop(), "judge_failed") if len(failures) == 1 else "judge_failed"


def average_standings(views: Sequence[JudgeView], count: int) -> tuple[float, ...]:
    """The mean over the judges, each weighted by its reliability."""
    known = [(view.reliability, view.relative) for view in views if view.relative is not None]
    total = math.fsum(weight for weight, _ in known)
    if total == 0:
        return (NEUTRAL,) * count
    return tuple(math.fsum(weight * relative[place] for weight, relative in known) / total for place in range(count))


def _list_group_flags(views: Sequence[JudgeView], relative_weight: float, missing: bool) -> tuple[str, ...]:
    flags = ["judge_missing"] if missing else []
    if any(view.lacks_readings for view in views):
        flags.append("reading_missing")
    if all(view.relative is None for view in views):
        return (*flags, "no_comparison")
    if any(view.follows_position for view in views):
        flags.append("position_dominated")
    noisy = [view for view in views if view.follows_rubric] or views  # a reward model says the same every time
    if not any(stands_out(view.samples, relative_weight) for view in noisy if view.samples):
        flags.append("low_signal")
    return tuple(flags)


def _compose_rationale(views: Sequence[JudgeView], place: int, defects: Mapping[str, Defect]) -> str:
    notes: dict[str, str] = {}
    for view in views:
        for judge, verdict in zip(view.judges[place], view.verdicts[place], strict=True):
            notes.setdefault(judge, verdict.note)
    told = [note if len(notes) == 1 else f"{judge}: {note}" for judge, note in notes.items() if note]
    faults = [f'{code}: "{defect.quote}"' if defect.quote else code for code, defect in defects.items()]
    return " ".join(" — ".join((*told, *faults)).split())[:_LONGEST_RATIONALE]
