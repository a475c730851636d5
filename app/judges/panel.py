"""Judges a group: gates first, then the judges, then one score per candidate."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.digests import digest
from app.domain.judging import Case, Defect, GateFacts, JudgeFailure, Mode, PanelResult, Rubric, Verdict
from app.domain.rewards import absolute_of, cap_of, combine, criteria_of
from app.domain.scores import Criterion, Reason, Score
from app.judges.claims import account
from app.judges.deadline import JUDGING_SECONDS, BoundedJudge
from app.judges.gates.registry import GATES, GATES_DIGEST, Gate, confirmed, failed_gates, hints, told_rubric
from app.judges.limits import turn
from app.judges.listwise import read_listwise
from app.judges.pairwise import read_pairwise
from app.judges.pointwise import read_pointwise
from app.judges.reading import Reply, visible_text
from app.judges.readings import NEUTRAL, Group, Report, View, mean, mean_values
from app.ports.judges import Judge

FAR_APART: Final = 0.35
"""From this difference between two judges' rewards for a candidate they count as disagreeing."""
VERSION: Final = 3
"""Increase this when the same judgements would give different scores."""

READERS: Final[Mapping[Mode, Callable[[Judge, Group, int], Awaitable[Report]]]] = {
    "listwise": read_listwise,
    "pairwise": read_pairwise,
    "pointwise": read_pointwise,
}

_REASONS: Final[Mapping[JudgeFailure | None, Reason]] = {"budget": "budget", "language": "language_unknown"}
_AT_ONCE: Final = 50_000
"""Largest group, in characters, that the gates check on the event loop."""
_LONGEST_RATIONALE: Final = 600


class JudgePanel:
    """One or more judges in one mode. `votes` is how often each judge is asked the same, `seconds` the time limit for a
    group."""

    def __init__(
        self,
        judges: Sequence[Judge],
        relative_weight: float,
        mode: Mode = "listwise",
        votes: int = 1,
        *,
        seconds: float = JUDGING_SECONDS,
    ) -> None:
        self._judges = tuple(judges)
        self._relative_weight = relative_weight
        self._read = READERS[mode]
        self._votes = votes
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
            }
        )

    async def judge(self, case: Case) -> PanelResult:
        seen = tuple(visible_text(text) for text in case.candidates)
        noticed = await _noticed(case)
        failed = [each.failed for each in noticed]
        passed = _passed(seen, noticed)
        reports: Sequence[Report] = ()
        scores: Mapping[str, Score] = {}
        if passed:
            group = Group.of(
                case,
                passed,
                {text: each.own for text, each in passed.items()},
                {text: tuple(hint.notices for hint in each.hints) for text, each in passed.items()},
            )
            judges = [BoundedJudge(judge, self._seconds) for judge in self._judges]
            reports = await asyncio.gather(*(self._read(judge, group, self._votes) for judge in judges))
            answered = _answered(reports)
            scores = {
                text: score.model_copy(
                    update={
                        "candidate": group.ids[text],
                        "judges": answered,
                        "flags": (*score.flags, *(hint.flag for hint in passed[text].hints)),
                    }
                )
                for text, score in self._scores(group, reports, passed).items()
            }
        return PanelResult(
            scores=tuple(_gated(gates) if gates else scores[text] for text, gates in zip(seen, failed, strict=True)),
            judgements=tuple(judgement for report in reports for judgement in report.judgements),
        )

    def _scores(self, group: Group, reports: Sequence[Report], passed: Mapping[str, "_Noticed"]) -> Mapping[str, Score]:
        views = [report.view for report in reports if report.view is not None]
        if not views:
            words = "; ".join(f"{report.judge}: {report.error}" for report in reports)
            return dict.fromkeys(group.texts, Score.unscored(_reason(reports), words[:_LONGEST_RATIONALE]))
        flags = _group_flags(views, missing=len(views) < len(reports))
        values = [mean_values(column) for column in zip(*(view.values for view in views), strict=True)]
        telling = [view.relative for view in views if view.agrees and view.relative is not None]
        return {
            text: self._score(
                group,
                views,
                place,
                values[place],
                mean(relative[place] for relative in telling) if telling else NEUTRAL,
                flags,
                passed[text].hints,
            )
            for place, text in enumerate(group.texts)
        }

    def _score(
        self,
        group: Group,
        views: Sequence[View],
        place: int,
        values: Mapping[str, float | None],
        standing: float,
        flags: Sequence[str],
        noticed: Sequence[Gate],
    ) -> Score:
        rubric = group.case.rubric
        criteria = criteria_of(rubric, values)
        absolute = absolute_of(criteria)
        relative = absolute if len(group.texts) == 1 else standing
        defects = _defects(views, place)
        leaked = confirmed(noticed, defects.values(), rubric)
        gate = 0.0 if leaked else 1.0
        own = ["judges_disagree"] if self._far_apart(views, place) else []
        return Score(
            outcome="scored",
            reward=combine(gate, absolute, relative, self._relative_weight, cap_of(rubric, defects.values())),
            gate=gate,
            absolute=absolute,
            relative=relative,
            criteria=_explained(rubric, criteria, [verdict for view in views for verdict in view.verdicts[place]]),
            flags=tuple(dict.fromkeys((*leaked, *flags, *own, *defects))),
            rationale=_rationale(views, place, defects),
        )

    def _far_apart(self, views: Sequence[View], place: int) -> bool:
        rewards = [
            combine(
                1.0,
                view.absolutes[place],
                view.absolutes[place] if view.relative is None else view.relative[place],
                self._relative_weight,
            )
            for view in views
        ]
        return max(rewards) - min(rewards) >= FAR_APART


@dataclass(frozen=True)
class _Noticed:
    """Gate results of one candidate, or of all with the same text. `own` is the model's own part of a transcript."""

    failed: tuple[Gate, ...]
    hints: tuple[Gate, ...]
    own: str = ""


def _passed(seen: Sequence[str], noticed: Sequence[_Noticed]) -> Mapping[str, _Noticed]:
    """By text, the candidates that passed all gates. Equal transcripts may consist of different lines: their hints and
    own texts are merged."""
    alike: defaultdict[str, list[_Noticed]] = defaultdict(list)
    for text, each in zip(seen, noticed, strict=True):
        if not each.failed:
            alike[text].append(each)
    return {
        text: _Noticed(
            (),
            tuple(sorted({hint for each in listed for hint in each.hints}, key=GATES.index)),
            "\n".join(sorted({each.own for each in listed})),
        )
        for text, listed in alike.items()
    }


async def _noticed(case: Case) -> Sequence[_Noticed]:
    """Checks one candidate per pass of the event loop, or a large group in a thread."""
    if sum(map(len, case.candidates)) + sum(len(line.text) for lines in case.lines for line in lines) > _AT_ONCE:
        return await asyncio.to_thread(lambda: [_noticed_in(lines, case) for lines in _checked(case)])
    noticed = []
    async with turn("gates"):
        for lines in _checked(case):
            noticed.append(_noticed_in(lines, case))
            await asyncio.sleep(0)
    return noticed


def _checked(case: Case) -> Iterator[Sequence[tuple[str, GateFacts]]]:
    """Per candidate the texts for the gates, with their facts. A failure or hint in one line of an episode counts for
    the whole episode."""
    if case.lines:
        for lines in case.lines:
            yield [(line.text, told_rubric(line.gates, case.rubric)) for line in lines]
    else:
        facts = told_rubric(case.gates, case.rubric)
        yield from ([(text, facts)] for text in case.candidates)


def _noticed_in(lines: Sequence[tuple[str, GateFacts]], case: Case) -> _Noticed:
    read = [(Reply(text), facts) for text, facts in lines]
    failed = tuple(dict.fromkeys(gate for reply, facts in read for gate in failed_gates(reply, facts)))
    if failed:
        return _Noticed(failed, ())
    own = "\n".join(reply.visible for reply, _ in read) if case.lines else ""
    return _Noticed((), tuple(dict.fromkeys(gate for reply, facts in read for gate in hints(reply, facts))), own)


def _answered(reports: Sequence[Report]) -> tuple[str, ...]:
    """The judges whose judgements count: for a refusal, the fallback."""
    made = (judgement for report in reports if report.view is not None for judgement in report.judgements)
    return tuple(dict.fromkeys(judgement.judge for judgement in made if judgement.error is None))


def _gated(gates: Sequence[Gate]) -> Score:
    words = "; ".join(gate.notices for gate in gates)
    return Score.gated(*(gate.flag for gate in gates), rationale=f"Not judged, because the reply {words}.")


def _reason(reports: Sequence[Report]) -> Reason:
    """The reason that all failures share, otherwise `judge_failed`."""
    failures = {made.failure for report in reports for made in report.judgements if made.error is not None}
    return _REASONS.get(failures.pop(), "judge_failed") if len(failures) == 1 else "judge_failed"


def _group_flags(views: Sequence[View], missing: bool) -> tuple[str, ...]:
    flags = ["judge_missing"] if missing else []
    if all(view.relative is None for view in views):
        return (*flags, "no_comparison")
    if any(view.follows_position for view in views):
        flags.append("position_dominated")
    if not any(view.agrees for view in views):
        flags.append("low_signal")
    return tuple(flags)


def _defects(views: Sequence[View], place: int) -> Mapping[str, Defect]:
    """By code, with the first quote, the defects that at least half of all judgements report."""
    readings = [verdict.defects for view in views for verdict in view.verdicts[place]]
    counts = Counter(code for defects in readings for code in {defect.code for defect in defects})
    found: dict[str, Defect] = {}
    for defect in (defect for defects in readings for defect in defects):
        if 2 * counts[defect.code] >= len(readings):
            found.setdefault(defect.code, defect)
    return found


def _explained(rubric: Rubric, criteria: Sequence[Criterion], verdicts: Sequence[Verdict]) -> tuple[Criterion, ...]:
    """Adds the judges' claims as a note to the criterion about claims."""
    about = "" if rubric.claims is None else rubric.claims.criterion
    note = account(rubric, verdicts)[:_LONGEST_RATIONALE]
    return tuple(each.model_copy(update={"note": note}) if note and each.name == about else each for each in criteria)


def _rationale(views: Sequence[View], place: int, defects: Mapping[str, Defect]) -> str:
    notes = [(view.judge, view.verdicts[place][0].note) for view in views]
    told = [note if len(views) == 1 else f"{judge}: {note}" for judge, note in notes if note]
    faults = [f'{code}: "{defect.quote}"' if defect.quote else code for code, defect in defects.items()]
    return " ".join(" — ".join((*told, *faults)).split())[:_LONGEST_RATIONALE]
