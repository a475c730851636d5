"""Evaluations as a run would have left them, small enough to be checked by hand."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from app.evaluation.duels import Contestant, Duel, DuelReading, TournamentReport, TournamentSetup
from app.evaluation.report import Attempt, Evaluation, EvaluationSetup
from app.evaluation.tournament import build_tournament_report

STARTED = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOSTILE = (
    "</pre><script>document.title = 'mine'</script><img src=x onerror=alert(1)> \u202eevil {{ 7 * 7 }} &amp; \x1b[31m"
)


def task_id(place: int) -> str:
    return f"task_{place:032x}"


def scored(place: int, sample: int, reward: float, **more: object) -> Attempt:
    return Attempt.model_validate(
        {
            "task_id": task_id(place),
            "place": place,
            "sample": sample,
            "outcome": "scored",
            "reward": reward,
            "criteria": {"correct": reward},
            "scoring_digest": "rule",
            "group_id": f"group_{place:032x}",
            "prompt": "What is it?",
            "text": "It is this.",
            "characters": 11,
            **more,
        }
    )


def unscored(place: int, sample: int, reason: str = "judge_failed", **more: object) -> Attempt:
    return Attempt.model_validate(
        {
            "task_id": task_id(place),
            "place": place,
            "sample": sample,
            "outcome": "unscored",
            "reason": reason,
            "rationale": "it did not answer",
            **more,
        }
    )


def setup(**more: object) -> EvaluationSetup:
    given = {"environment": "riddles", "version": "1", "tasks": 3, "samples": 2, "model": "small", "run": "eval-1"}
    return EvaluationSetup.model_validate({**given, "started_at": STARTED, **more})


def evaluation(attempts: Sequence[Attempt], **more: object) -> Evaluation:
    return Evaluation(setup=setup(**more), attempts=tuple(attempts), finished_at=STARTED)


def rewarded(rewards: Mapping[int, Sequence[float]], **more: object) -> Evaluation:
    """Every task by its place, with the rewards of its attempts."""
    samples = max(len(each) for each in rewards.values())
    attempts = [scored(place, sample, reward) for place, each in rewards.items() for sample, reward in enumerate(each)]
    return evaluation(attempts, **{"tasks": len(rewards), "samples": samples, **more})


def hostile() -> Evaluation:
    """Everything that a stranger can write is as bad as it gets."""
    attempts = [
        scored(
            place,
            sample,
            (place + sample) % 4 / 4 + 0.1,
            label=f"{HOSTILE}{place % 3}",
            criteria={HOSTILE: 0.5, "voice": None if place == 0 else 0.25},
            flags=(HOSTILE,),
            rationale=HOSTILE,
            judges=("offline", HOSTILE),
            prompt=HOSTILE * 20,
            text=HOSTILE * 60,
            characters=1_000_000,
            scoring_digest=f"{HOSTILE}{place % 2}",
            group_id=HOSTILE,
            output_tokens=5,
        )
        for place in range(6)
        for sample in range(4)
    ]
    attempts.append(unscored(6, 0, HOSTILE, rationale=HOSTILE, label=HOSTILE))
    more = {"model": HOSTILE, "environment": HOSTILE, "label": HOSTILE, "offline_judges": ("offline",)}
    return evaluation(
        attempts, tasks=8, samples=4, params={HOSTILE: HOSTILE}, sampling={"extra": {"x": HOSTILE}}, **more
    )


def duel(place: int, one: int, other: int, better: str | None, **more: object) -> Duel:
    """Both orders found the same one better; None without an outcome."""
    sides = ("one", "other") if better is not None else ()
    readings = tuple(DuelReading.model_validate({"shown_first": side, "better": better}) for side in sides)
    groups = (f"group_{one:032x}", f"group_{other:032x}")
    known = {"task_id": task_id(place), "one": one, "other": other, "groups": groups, "readings": readings}
    return Duel.model_validate({"decided_by": None if better is None else "judge", **known, **more})


def tournament(duels: Sequence[Duel], names: Sequence[str] = ("a", "b", "c"), notice: str = "") -> TournamentReport:
    made = TournamentSetup(
        judge="stern",
        judge_model="judge-9",
        environments=("riddles",),
        contestants=tuple(Contestant(name=name, source=name, models=(name,)) for name in names),
        run="tournament-stern",
        seed=0,
        tasks=3,
        started_at=STARTED,
    )
    return build_tournament_report(made, duels, notice, STARTED)


def hostile_tournament() -> TournamentReport:
    duels = [
        *(duel(place, 0, 1, ("one", "other", "tie")[place % 3], label=f"{HOSTILE}{place % 2}") for place in range(9)),
        duel(9, 1, 2, None, reason=HOSTILE, group_id=HOSTILE),
    ]
    return tournament(duels, (HOSTILE, f"{HOSTILE}2", f"{HOSTILE}3"), HOSTILE)
