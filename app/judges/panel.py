"""Judges a group: gates first, then the judges, then one score per candidate."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.digests import digest
from app.domain.judging import Case, Defect, GateFacts, JudgeFailure, Mode, PanelResult, Rubric, Verdict
from app.domain.rewards import build_criteria, combine, compute_absolute, find_cap
from app.domain.scores import Criterion, Reason, Score
from app.judges.aggregation import NEUTRAL, CandidateGroup, GroupResult, JudgeView, average_values
from app.judges.capping_defects import collect_defects, settle_divided_caps
from app.judges.claims import explain_claims
from app.judges.deadline import JUDGING_SECONDS, DeadlineJudge
from app.judges.gates.gate_registry import (
    GATES,
    GATES_DIGEST,
    Gate,
    add_rubric_text,
    find_failed_gates,
    find_hints,
    list_confirmed_flags,
)
from app.judges.limits import take_exclusive_turn
from app.judges.listwise import MOST_READINGS, read_listwise
from app.judges.offline import NAME as OFFLINE
from app.judges.pairwise import read_pairwise
from app.judges.pointwise import read_pointwise
from app.judges.reliability import stands_out
from app.judges.text_normalisation import Reply, strip_thoughts
from app.ports.judges import Judge

DISAGREEMENT_GAP: Final = 0.35
"""From this difference between two judges' rewards for a candidate they count as disagreeing."""
VERSION: Final = 7
"""Increase this when the same judgements would give different scores."""

READERS: Final[Mapping[Mode, Callable[[Judge, CandidateGroup, int], Awaitable[GroupResult]]]] = {
    "pairwise": read_pairwise,
    "pointwise": read_pointwise,
}

_REASONS: Final[Mapping[JudgeFailure | None, Reason]] = {"budget": "budget", "language": "language_unknown"}
_MOST_GATED_ON_LOOP: Final = 50_000
"""Largest group, in characters, that the gates check on the event loop."""
_LONGEST_RATIONALE: Final = 600


class JudgePanel:
    """One or more judges in one mode. `votes` is how often each judge is asked the same, `readings` how often each
    reads a group at most in `listwise`, `seconds` the time limit for a group."""

    def __init__(
        self,
        judges: Sequence[Judge],
        relative_weight: float,
        mode: Mode = "listwise",
        votes: int = 1,
        *,
        readings: int | None = None,
        seconds: float = JUDGING_SECONDS,
    ) -> None:
        self._judges = tuple(judges)
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
                "version": VERSION,
                "gates": GATES_DIGEST,
                "judges": [[judge.name, judge.digest] for judge in judges],
                "relative_weight": relative_weight,
                **({} if readings is None else {"readings": readings}),
            }
        )

    async def judge(self, case: Case) -> PanelResult:
        seen = tuple(strip_thoughts(text) for text in case.candidates)
        noticed = await _run_gates_on_case(case)
        failed = [each.failed for each in noticed]
        passed = _group_passed(seen, noticed)
        reports: Sequence[GroupResult] = ()
        scores: Mapping[str, Score] = {}
        if passed:
            group = CandidateGroup.from_texts(
                case,
                passed,
                {text: each.own for text, each in passed.items()},
                {text: tuple(hint.notices for hint in each.hints) for text, each in passed.items()},
            )
            judges = [DeadlineJudge(judge, self._seconds) for judge in self._judges]
            reports = await asyncio.gather(*(self._read_group(judge, group) for judge in judges))
            answered = _list_answering_judges(reports)
            scores = {
                text: score.model_copy(
                    update={
                        "candidate": group.ids[text],
                        "judges": answered,
                        "flags": (
                            *score.flags,
                            *(hint.flag for hint in passed[text].hints),
                            *_list_judge_flags(answered),
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

    async def _read_group(self, judge: Judge, group: CandidateGroup) -> GroupResult:
        if self._mode == "listwise":
            report = await read_listwise(judge, group, most_readings=self._readings)
        else:
            report = await READERS[self._mode](judge, group, self._votes)
        return await settle_divided_caps(judge, group, report, self._mode, self._votes)

    def _build_scores(
        self, group: CandidateGroup, reports: Sequence[GroupResult], passed: Mapping[str, "_GateResult"]
    ) -> Mapping[str, Score]:
        views = [report.view for report in reports if report.view is not None]
        if not views:
            words = "; ".join(f"{report.judge}: {report.error}" for report in reports)
            return dict.fromkeys(group.texts, Score.unscored(_choose_reason(reports), words[:_LONGEST_RATIONALE]))
        flags = _list_group_flags(views, self._relative_weight, missing=len(views) < len(reports))
        values = [average_values(column) for column in zip(*(view.values for view in views), strict=True)]
        standings = _average_standings(views, len(group.texts))
        return {
            text: self._build_score(
                group,
                views,
                place,
                values[place],
                standings[place],
                flags,
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
        rubric = group.case.rubric
        criteria = build_criteria(rubric, values)
        absolute = compute_absolute(criteria)
        relative = absolute if len(group.texts) == 1 else standing
        defects = collect_defects(views, place)
        leaked = list_confirmed_flags(noticed, defects.values(), rubric)
        gate = 0.0 if leaked else 1.0
        cap = find_cap(rubric, defects.values())
        own = ["judges_disagree"] if self._judges_disagree(views, place) else []
        return Score(
            outcome="scored",
            reward=combine(gate, absolute, relative, self._relative_weight, cap),
            gate=gate,
            absolute=absolute,
            relative=relative,
            relative_weight=self._relative_weight,
            cap=cap if cap < 1.0 else None,
            criteria=_attach_claim_notes(
                rubric, criteria, [verdict for view in views for verdict in view.verdicts[place]]
            ),
            flags=tuple(dict.fromkeys((*leaked, *flags, *own, *defects))),
            rationale=_compose_rationale(views, place, defects),
        )

    def _judges_disagree(self, views: Sequence[JudgeView], place: int) -> bool:
        rewards = [
            combine(
                1.0,
                view.absolutes[place],
                view.absolutes[place] if view.relative is None else view.relative[place],
                self._relative_weight,
            )
            for view in views
        ]
        return max(rewards) - min(rewards) >= DISAGREEMENT_GAP


@dataclass(frozen=True)
class _GateResult:
    """Gate results of one candidate, or of all with the same text. `own` is the model's own part of a transcript."""

    failed: tuple[Gate, ...]
    hints: tuple[Gate, ...]
    own: str = ""


def _group_passed(seen: Sequence[str], noticed: Sequence[_GateResult]) -> Mapping[str, _GateResult]:
    """By text, the candidates that passed all gates. Equal transcripts may consist of different lines: their hints and
    own texts are merged."""
    alike: defaultdict[str, list[_GateResult]] = defaultdict(list)
    for text, each in zip(seen, noticed, strict=True):
        if not each.failed:
            alike[text].append(each)
    return {
        text: _GateResult(
            (),
            tuple(sorted({hint for each in listed for hint in each.hints}, key=GATES.index)),
            "\n".join(sorted({each.own for each in listed})),
        )
        for text, listed in alike.items()
    }


async def _run_gates_on_case(case: Case) -> Sequence[_GateResult]:
    """Checks one candidate per pass of the event loop, or a large group in a thread."""
    if (
        sum(map(len, case.candidates)) + sum(len(line.text) for lines in case.lines for line in lines)
        > _MOST_GATED_ON_LOOP
    ):
        return await asyncio.to_thread(
            lambda: [_run_gates_on_lines(lines, case) for lines in _iterate_gate_inputs(case)]
        )
    noticed = []
    async with take_exclusive_turn("gates"):
        for lines in _iterate_gate_inputs(case):
            noticed.append(_run_gates_on_lines(lines, case))
            await asyncio.sleep(0)
    return noticed


def _iterate_gate_inputs(case: Case) -> Iterator[Sequence[tuple[str, GateFacts]]]:
    """Per candidate the texts for the gates, with their facts. A failure or hint in one line of an episode counts for
    the whole episode."""
    if case.lines:
        for lines in case.lines:
            yield [(line.text, add_rubric_text(line.gates, case.rubric)) for line in lines]
    else:
        facts = add_rubric_text(case.gates, case.rubric)
        yield from ([(text, facts)] for text in case.candidates)


def _run_gates_on_lines(lines: Sequence[tuple[str, GateFacts]], case: Case) -> _GateResult:
    read = [(Reply(text), facts) for text, facts in lines]
    failed = tuple(dict.fromkeys(gate for reply, facts in read for gate in find_failed_gates(reply, facts)))
    if failed:
        return _GateResult(failed, ())
    own = "\n".join(reply.visible for reply, _ in read) if case.lines else ""
    return _GateResult(
        (), tuple(dict.fromkeys(gate for reply, facts in read for gate in find_hints(reply, facts))), own
    )


def _list_answering_judges(reports: Sequence[GroupResult]) -> tuple[str, ...]:
    """The judges whose judgements count: for a refusal, the fallback."""
    made = (judgement for report in reports if report.view is not None for judgement in report.judgements)
    return tuple(dict.fromkeys(judgement.judge for judgement in made if judgement.error is None))


def _list_judge_flags(judges: Sequence[str]) -> list[str]:
    flags: list[str] = []
    if OFFLINE in judges:
        flags.append("offline_judge")
    return flags


def _build_gated_score(gates: Sequence[Gate]) -> Score:
    words = "; ".join(gate.notices for gate in gates)
    return Score.gated(*(gate.flag for gate in gates), rationale=f"Not judged, because the reply {words}.")


def _choose_reason(reports: Sequence[GroupResult]) -> Reason:
    """The reason that all failures share, otherwise `judge_failed`."""
    failures = {made.failure for report in reports for made in report.judgements if made.error is not None}
    return _REASONS.get(failures.pop(), "judge_failed") if len(failures) == 1 else "judge_failed"


def _average_standings(views: Sequence[JudgeView], count: int) -> tuple[float, ...]:
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
    if not any(stands_out(view.samples, relative_weight) for view in views if view.samples):
        flags.append("low_signal")
    return tuple(flags)


def _attach_claim_notes(
    rubric: Rubric, criteria: Sequence[Criterion], verdicts: Sequence[Verdict]
) -> tuple[Criterion, ...]:
    """Adds the judges' claims as a note to the criterion about claims."""
    about = "" if rubric.claims is None else rubric.claims.criterion
    note = explain_claims(rubric, verdicts)[:_LONGEST_RATIONALE]
    return tuple(
        each.model_copy(update={"note": "; ".join(filter(None, (each.note, note)))})
        if note and each.name == about
        else each
        for each in criteria
    )


def _compose_rationale(views: Sequence[JudgeView], place: int, defects: Mapping[str, Defect]) -> str:
    notes = [(view.judge, view.verdicts[place][0].note) for view in views]
    told = [note if len(views) == 1 else f"{judge}: {note}" for judge, note in notes if note]
    faults = [f'{code}: "{defect.quote}"' if defect.quote else code for code, defect in defects.items()]
    return " ".join(" — ".join((*told, *faults)).split())[:_LONGEST_RATIONALE]
