"""Panels: one or more judges that score a group together, and the panels that the settings describe.

A panel strips thoughts, runs the gates on each reply, and lets its judges read what is left in one mode. Reward models
are asked beside the judges that read by the rubric. A score is made of the means over the judges: the criteria give its
absolute part, the standings its relative part, and the counted defects its cap. A judge that fails is left out and
flagged. Where all that read by the rubric fail, the group is unscored: a reward model alone does not stand in for them.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from typing import Final

from app.domain.errors import InvalidRequest, UserError
from app.domain.judging import (
    Case,
    Defect,
    JudgeFailure,
    Judgement,
    JudgeReport,
    Mode,
    OwnRubric,
    PanelResult,
    Rubric,
    build_criteria,
)
from app.domain.making import CandidateMaking, CountedDefect, GroupMaking, JudgeShare, ScoreParts, WhyLeftOut
from app.domain.runs import PanelOptions, ScoringOptions
from app.domain.scores import CALIBRATION_SECONDS, Criterion, Reason, ReferencePlan, References, Score
from app.domain.values import digest, digest_of_model, utc_now
from app.judges.aggregation import (
    CandidateGroup,
    GroupResult,
    JudgeView,
    average_values,
    contradicts_itself,
    find_fault,
    mean,
    stands_out,
)
from app.judges.chat_judge import (
    CachingJudge,
    ChatJudge,
    FreshJudge,
    InProcessMemory,
    JudgeWithFallback,
    RepeatedJudge,
)
from app.judges.configuration import JUDGING_SECONDS, MOST_CHARACTERS_PER_TOKEN, ChatJudgeConfig, DeadlineJudge
from app.judges.gates import GATES_DIGEST, Gate, GateResult, group_passed, list_confirmed_flags, run_gates_on_case
from app.judges.judge_client import RequestForm, ServerTraits, build_request_form
from app.judges.modes import (
    MOST_READINGS,
    ask_for_references,
    await_all,
    count_reported,
    read_beside_references,
    read_listwise,
    read_pairwise,
    read_pointwise,
    settle_divided_caps,
)
from app.judges.offline import NAME as OFFLINE
from app.judges.offline import OfflineJudge
from app.judges.prompts import build_sound_rubric, require_sound_rubric
from app.judges.reward_models import REWARD_RUBRIC, RewardModelConfig, RewardModelJudge, read_rewards
from app.judges.verdicts import attach_claim_notes
from app.ports.judges import (
    CalibrationReading,
    Judge,
    JudgeCache,
    Panel,
    Panels,
    RepeatingJudge,
    ReportingJudge,
    WrittenReferences,
    gives_rewards,
)
from app.ports.players import PlayerModel
from app.toolkit.thoughts import strip_leading_thoughts

_DISAGREEMENT_GAP: Final = 0.35
"""From this difference between two judges' rewards for a candidate they count as disagreeing."""
VERSION: Final = 11
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
        case = self._apply_rubric(case)
        seen = tuple(strip_leading_thoughts(text) for text in case.candidates)
        noticed = await run_gates_on_case(case)
        failed = [each.failed for each in noticed]
        passed = group_passed(seen, noticed)
        reports: Sequence[GroupResult] = ()
        scores: Mapping[str, Score] = {}
        making: GroupMaking | None = None
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
            made, making = self._build_scores(group, reports, passed)
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
                for text, score in made.items()
            }
        return PanelResult(
            scores=tuple(
                _build_gated_score(gates) if gates else scores[text] for text, gates in zip(seen, failed, strict=True)
            ),
            judgements=tuple(judgement for report in reports for judgement in report.judgements),
            making=making,
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
            read_apart = _SEPARATE_READERS[self._mode]
            reports = tuple(await await_all([read_apart(judge, group, self._votes) for judge in judges]))
        by_name = {judge.name: judge for judge in judges}
        return await await_all(
            [settle_divided_caps(by_name[report.judge], group, report, self._mode, self._votes) for report in reports]
        )

    def _build_scores(
        self, group: CandidateGroup, reports: Sequence[GroupResult], passed: Mapping[str, GateResult]
    ) -> tuple[Mapping[str, Score], GroupMaking | None]:
        views = [report.view for report in reports if report.view is not None]
        graders = [view for view in views if view.follows_rubric]
        if not views or (not graders and not all(map(gives_rewards, self._judges))):
            words = "; ".join(f"{report.judge}: {report.error}" for report in reports)
            failed = Score.unscored(_choose_reason(reports), words[:_LONGEST_RATIONALE])
            return dict.fromkeys(group.texts, failed), None
        flags = _list_group_flags(views, self._relative_weight, missing=len(views) < len(reports))
        if any(contradicts_itself(view, group.case.rubric) for view in graders):
            flags = (*flags, "ranking_disagrees")
        asked = [report for report in reports if report.view is None or report.view.follows_rubric]
        if any(_may_be_cut(judgement) for report in asked for judgement in report.judgements):
            flags = (*flags, "prompt_cut")
        own = (*flags, "judges_disagree")  # of replies that judges disagree about
        disagreed = self._find_disagreements(graders, len(group.texts))
        hints = [passed[text].hints for text in group.texts]
        making, findings = _write_down(group, reports, self._relative_weight, hints)
        scores = {
            text: _build_score(group.case.rubric, views, index, parts, found, own if index in disagreed else flags)
            for index, (text, parts, found) in enumerate(
                zip(group.texts, making.compute_parts(), findings, strict=True)
            )
        }
        return scores, making

    def _find_disagreements(self, views: Sequence[JudgeView], count: int) -> frozenset[int]:
        """The places of candidates, by what each judge says on average. Single readings differ more than means of two:
        so does the limit."""
        mixed = [
            (view, [(sample.judge, sample.mix(self._relative_weight)) for sample in view.samples]) for view in views
        ]
        if len({source.judge for view, _ in mixed for sources in view.sources for source in sources}) < 2:
            return frozenset()
        return frozenset(index for index in range(count) if _judges_disagree(mixed, index))


def _build_score(
    rubric: Rubric,
    views: Sequence[JudgeView],
    index: int,
    parts: ScoreParts,
    found: "_TextFindings",
    flags: Sequence[str],
) -> Score:
    graded = [verdict for view in views if view.follows_rubric for verdict in view.verdicts[index]]
    return Score(
        outcome="scored",
        reward=parts.reward,
        gate=parts.gate,
        absolute=parts.absolute,
        relative=parts.relative,
        relative_weight=parts.relative_weight,
        cap=parts.cap if parts.cap < 1.0 else None,
        criteria=attach_claim_notes(rubric if graded else REWARD_RUBRIC, found.criteria, graded),
        flags=tuple(dict.fromkeys((*found.leaked, *flags, *found.defects))),
        rationale=_compose_rationale(views, index, found.defects),
    )


def _judges_disagree(views: Sequence[tuple[JudgeView, Sequence[tuple[str, Sequence[float]]]]], index: int) -> bool:
    """`views` with what each of their samples would pay."""
    rewards_by_judge: defaultdict[str, list[float]] = defaultdict(list)
    for view, mixed in views:
        for judge, paid in mixed:
            rewards_by_judge[judge].append(paid[index])
        if not mixed:
            rewards_by_judge[view.sources[index][0].judge].append(view.absolutes[index])
    rewards = [mean(listed) for listed in rewards_by_judge.values()]
    if not rewards:
        return False
    fewest = min(map(len, rewards_by_judge.values()))
    # The difference of two single readings has twice the variance of that of two means of two.
    return max(rewards) - min(rewards) >= _DISAGREEMENT_GAP * (math.sqrt(2) if fewest == 1 else 1.0)


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


def _may_be_cut(judgement: Judgement) -> bool:
    """Whether the server counted too few tokens for the prompt. Estimated counts never are."""
    answered = judgement.calls - judgement.unanswered_calls
    return 0 < judgement.input_tokens * MOST_CHARACTERS_PER_TOKEN < len(judgement.prompt) * answered


def _list_group_flags(views: Sequence[JudgeView], relative_weight: float, missing: bool) -> tuple[str, ...]:
    flags = ["judge_missing"] if missing else []
    if any(view.lacks_readings for view in views):
        flags.append("reading_missing")
    if all(view.standings is None for view in views):
        return (*flags, "no_comparison")
    if any(view.follows_position for view in views):
        flags.append("position_dominated")
    noisy = [view for view in views if view.follows_rubric] or views  # a reward model says the same every time
    if not any(stands_out(view.samples, relative_weight) for view in noisy if view.samples):
        flags.append("low_signal")
    return tuple(flags)


def _compose_rationale(views: Sequence[JudgeView], index: int, defects: Mapping[str, Defect]) -> str:
    notes: dict[str, str] = {}
    for view in views:
        for source, verdict in zip(view.sources[index], view.verdicts[index], strict=True):
            notes.setdefault(source.judge, verdict.note)
    remarks = [note if len(notes) == 1 else f"{judge}: {note}" for judge, note in notes.items() if note]
    faults = [f'{code}: "{defect.quote}"' if defect.quote else code for code, defect in defects.items()]
    return " ".join(" — ".join((*remarks, *faults)).split())[:_LONGEST_RATIONALE]


# Writing down what scores are made of, before they are made of it.


@dataclass(frozen=True)
class _TextFindings:
    """What the readings of one text come to, in words that the record does not hold."""

    criteria: tuple[Criterion, ...]
    defects: Mapping[str, Defect]
    """Those that count, by code, each with its first quote."""
    leaked: tuple[str, ...]
    """Flags of hints that these defects confirm. They close the gate."""


def _write_down(
    group: CandidateGroup, reports: Sequence[GroupResult], relative_weight: float, hints: Sequence[Sequence[Gate]]
) -> tuple[GroupMaking, tuple[_TextFindings, ...]]:
    """`reports` have a view at least. `hints` are those of the gates, by text, as the findings are. Readings are
    numbered through all reports."""
    views = [report.view for report in reports if report.view is not None]
    graders = [view for view in views if view.follows_rubric]
    # By identity: views hold these very judgements, and two of them may be equal.
    places = {id(made): place for place, made in enumerate(made for report in reports for made in report.judgements)}
    values = [average_values(column) for column in zip(*(view.values for view in graders or views), strict=True)]
    candidates: list[CandidateMaking] = []
    found: list[_TextFindings] = []
    for index, text in enumerate(group.texts):
        reported = [each for view in graders for each in view.list_defect_reports(index)]
        findings = _find(group.case, bool(graders), values[index], [defects for _, defects in reported], hints[index])
        candidates.append(
            CandidateMaking.build_trusted(
                candidate=group.ids[text],
                means=tuple([values[index].get(each.name) for each in findings.criteria]),
                unmet=tuple([each.name for each in findings.criteria if each.value != values[index].get(each.name)]),
                gate=0.0 if findings.leaked else 1.0,
                readings=len(reported),
                defects=_count_defects(group.case, findings.defects, reported, places),
            )
        )
        found.append(findings)
    making = GroupMaking.build_trusted(
        relative_weight=relative_weight,
        criteria={each.name: each.weight for each in found[0].criteria},
        shares=tuple([_describe_share(view, places) for view in views]),
        candidates=tuple(candidates),
        left_out=_list_left_out(group, reports, places),
    )
    return making, tuple(found)


def _find(
    case: Case,
    is_graded: bool,
    values: Mapping[str, float | None],
    reported: Sequence[Sequence[Defect]],
    hints: Sequence[Gate],
) -> _TextFindings:
    rubric = case.rubric if is_graded else REWARD_RUBRIC
    counted = count_reported(reported)
    leaked = list_confirmed_flags(hints, counted.values(), rubric)
    return _TextFindings(build_criteria(rubric, values), counted, leaked)


def _count_defects(
    case: Case,
    counted: Mapping[str, Defect],
    reported: Sequence[tuple[Judgement, Sequence[Defect]]],
    places: Mapping[int, int],
) -> tuple[CountedDefect, ...]:
    """All that were reported, in the order of the readings."""
    if not any(defects for _, defects in reported):
        return ()
    numbered = sorted([(places[id(source)], defects) for source, defects in reported], key=itemgetter(0))
    codes = dict.fromkeys([defect.code for _, defects in numbered for defect in defects])
    caps = {rule.code: rule.cap for rule in case.rubric.defects}
    return tuple(
        CountedDefect.build_trusted(
            code=code,
            reported=tuple([place for place, defects in numbered if any(each.code == code for each in defects)]),
            counts=code in counted,
            cap=caps.get(code),
        )
        for code in codes
    )


def _describe_share(view: JudgeView, places: Mapping[int, int]) -> JudgeShare:
    sources = {id(source): source for of_text in view.sources for source in of_text}
    numbered = sorted((places[one], source.judge) for one, source in sources.items())
    return JudgeShare.build_trusted(
        judges=tuple(dict.fromkeys([judge for _, judge in numbered])),
        readings=tuple([place for place, _ in numbered]),
        grades=view.follows_rubric,
        reliability=view.reliability,
        standings=view.standings or (),
    )


def _list_left_out(
    group: CandidateGroup, reports: Sequence[GroupResult], places: Mapping[int, int]
) -> dict[int, WhyLeftOut]:
    left_out: dict[int, WhyLeftOut] = {}
    texts = {name: text for text, name in group.ids.items()}
    for report in reports:
        view = report.view
        used = set() if view is None else {id(source) for of_text in view.sources for source in of_text}
        deciding = set() if view is None else {id(source) for source, _ in view.deciding_verdicts.values()}
        for made in report.judgements:
            if made.error is not None or id(made) in used:
                continue
            why: WhyLeftOut = "too_few_readings" if view is None else "lacks_its_mirror"
            if id(made) in deciding:
                why = "decides_defects"
            elif not texts.keys() >= set(made.order) or find_fault(
                group.select_texts([texts[name] for name in made.order]), made
            ):
                why = "unusable"
            left_out[places[id(made)]] = why
    return left_out


# Configured panels: which judges score which environment, with which options.

DEFAULTS: Final = PanelOptions(mode="listwise", votes=1, judges=(OFFLINE,), relative_weight=0.5)
"""Used where neither the run nor the settings set an option."""

_CALIBRATION_SHARES: Final[Mapping[int, float]] = {1: 0.01, 2: 0.02, 4: 0.025}
"""By readings, where neither sets a share: a reading beside references takes a hundredth of what readings take."""

_PANELS_KEPT: Final = 1000
"""Equal options share a panel, whose digest is then made once."""


class ConfiguredPanels:
    """`defaults` holds options by environment; `fallback` names the judges where they name none. The offline judge is
    always available. UserError for an unknown judge."""

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
        self._made = lru_cache(maxsize=_PANELS_KEPT)(self._create_panel)
        if not isinstance(self._judges[OFFLINE], OfflineJudge):
            raise UserError(f"{OFFLINE!r} is the name of the built-in offline judge; choose another name")
        named = {
            "fallback": self._fallback.judges,
            **{name: options.judges for name, options in self._defaults.items()},
        }
        for where, names in named.items():
            unknown = sorted(set(names) - set(self._judges))
            if unknown:
                raise UserError(f"{where}: there is no judge {unknown[0]!r}")
        for where in self._defaults:
            if problem := self._find_repeated_votes(self.resolve_options(where, ScoringOptions())):
                raise UserError(f"{where}: {problem}")

    @property
    def judges(self) -> Mapping[str, Judge]:
        return self._judges

    def resolve_options(self, environment: str, options: ScoringOptions) -> PanelOptions:
        chosen, share = self._fallback, None
        for layer in (self._defaults.get(environment, ScoringOptions()), options):
            share = share if layer.calibration_share is None else layer.calibration_share
            chosen = PanelOptions(
                mode=layer.mode or chosen.mode,
                votes=layer.votes or chosen.votes,
                judges=layer.judges or chosen.judges,
                readings=layer.readings or chosen.readings,
                relative_weight=chosen.relative_weight if layer.relative_weight is None else layer.relative_weight,
                rubric=chosen.rubric if layer.rubric is None else build_sound_rubric(layer.rubric),
            )
        share = _CALIBRATION_SHARES[chosen.readings or MOST_READINGS] if share is None else share
        return chosen.model_copy(update={"judges": tuple(dict.fromkeys(chosen.judges)), "calibration_share": share})

    def build_panel(self, environment: str, options: ScoringOptions) -> Panel:
        return self._made(environment, options)

    def build_fresh_panel(self, environment: str, options: ScoringOptions) -> Panel:
        return self._create_panel(environment, options, FreshJudge)

    def build_repeated_panel(self, environment: str, options: ScoringOptions, time: int) -> Panel:
        """The same for groups that it has judged `time` times already: its judges are asked everything once more."""
        return self._create_panel(environment, options, partial(RepeatedJudge, time=time) if time else None)

    def check_rubric(self, rubric: OwnRubric, field: str) -> None:
        require_sound_rubric(rubric, field)

    def refuses_self_judging(self, judge: str) -> bool:
        return judge not in self._self_judging

    def _create_panel(
        self, environment: str, options: ScoringOptions, wrap: Callable[[Judge], Judge] | None = None
    ) -> Panel:
        chosen = self.resolve_options(environment, options)
        judges: tuple[Judge, ...] = self._select_judges(chosen.judges)
        judges = judges if wrap is None else tuple(map(wrap, judges))
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
        judges = [self._judges[name] for name in chosen.judges]
        repeating = [judge.name for judge in judges if isinstance(judge, RepeatingJudge) and judge.repeats_itself]
        if not repeating:
            return ""
        return (
            f"{chosen.votes} votes of judge {repeating[0]!r} would be the same answer to the same request, since its "
            "temperature is 0; give it a higher one (`temperature` in the settings), or take 1 vote"
        )

    def _select_judges(self, names: Sequence[str]) -> tuple[Judge, ...]:
        unknown = [name for name in names if name not in self._judges]
        if unknown:
            available = ", ".join(sorted(self._judges))
            raise InvalidRequest(f"there is no judge {unknown[0]!r}; there are {available}", field="options.judges")
        return tuple(self._judges[name] for name in names)


def collect_reports(panels: Panels, players: Iterable[PlayerModel] = ()) -> dict[str, JudgeReport]:
    """By name, for the judges that report, and for players."""
    reports = {name: judge.report() for name, judge in panels.judges.items() if isinstance(judge, ReportingJudge)}
    return reports | {player.name: player.report() for player in players}


# Judges by their configurations: chat judges with cache and fallback, reward models with a cache.


def build_chat_judges(
    configs: Sequence[ChatJudgeConfig], fallbacks: Mapping[str, str], memory: JudgeCache | None
) -> dict[str, Judge]:
    """By name. `fallbacks` maps a judge to the one that is asked when it refuses or gives no valid answer; fallbacks do
    not chain. UserError for a fallback that is not another judge. Without a `memory` nothing is cached."""
    memory = InProcessMemory(utc_now) if memory is None else memory
    # Judges that ask the same model in the same form share what is learned of its server.
    traits: dict[tuple[str, str, RequestForm], ServerTraits] = {}
    remembering: dict[str, CachingJudge] = {}
    for config in configs:
        form_key = (config.base_url, config.model, build_request_form(config))
        shared_traits = traits.setdefault(form_key, ServerTraits(config))
        judge = ChatJudge(config, memory, has_fallback=config.name in fallbacks, traits=shared_traits)
        remembering[config.name] = CachingJudge(judge, memory)
    judges: dict[str, Judge] = dict(remembering)
    for name, fallback in fallbacks.items():
        if fallback not in remembering or fallback == name:
            raise UserError(f"judges.{name}.fallback: {fallback!r} is not another configured judge")
        judges[name] = JudgeWithFallback(remembering[name], remembering[fallback])
    return judges


def build_reward_judges(configs: Sequence[RewardModelConfig], memory: JudgeCache | None) -> dict[str, Judge]:
    """By name. Without a `memory` nothing is cached."""
    memory = InProcessMemory(utc_now) if memory is None else memory
    return {config.server.name: CachingJudge(RewardModelJudge(config, memory), memory) for config in configs}
