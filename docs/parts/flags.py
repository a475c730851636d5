"""Reasons, gates, the flags that the service and its panels set, and the defects that judges may report."""

from collections.abc import Mapping
from typing import get_args

from app.domain.scores import Reason
from app.judges.gates.gate_registry import GATES, Gate
from docs.markdown import code, table
from docs.parts.environments import environments

REASONS: Mapping[Reason, str] = {
    "judge_failed": "no judge gave a usable verdict in its time, corrective retry included",
    "budget": "the judge's budget is used up",
    "language_unknown": "the judge does not know the language, or what is answered is too short to tell it",
    "self_judge": "the judge is the policy's own model and is not allowed to be",
    "verifier_killed": "checking the completion took more time or memory than it may",
    "verifier_failed": "the verifier broke",
    "version_changed": "the task was handed out by another version of the environment or of its data",
    "stale": "the group's lag is above its run's `max_lag`, and the run drops such groups: final",
    "environment_unavailable": "the environment's data cannot be read at the moment",
    "internal": "a fault of the service; its log has more",
}

GROUP_FLAGS: Mapping[str, str] = {
    "task_remade": "on a scoring made later: the environment has changed since, and the stored prompt was scored "
    "against what its task is now",
    "late": "the lease had expired or was answered already: stored and scored, but no task is completed by it; or a "
    "piece that came when its group had been judged: judged alone",
    "partial_group": "the group came in pieces, and its time was up before all had come: judged without those that are "
    "missing",
    "masked": "a trainer whose members must agree was told that the group has no reward, since one has none: it "
    "is never scored again",
    "stale": "its lag was above its run's `max_lag` when it came",
    "older_policy": "its lag is negative: the policy at scoring is of an earlier step than at hand-out, as after a "
    "restart from an older checkpoint",
    "scoring_changed": "scored otherwise than when the run began: another version, data, rubric, judge or option",
}

SCORE_FLAGS: Mapping[str, str] = {
    "truncated": "`finish_reason` is `length` and the run's `on_truncated` is `zero`: earns 0, no judge sees it",
    "no_context": "the retriever failed, and the settings let the task go out without its passages",
    "no_comparison": "only one distinct completion was judged: `relative` is `absolute`",
    "low_signal": "what is paid differs between the completions by no more than the noise between a judge's readings",
    "calibration_bounded": "the calibrated value lay more than 0.6 beyond the references and was cut off there",
    "position_dominated": "a judge followed the order of presentation more than the completions; the means of both "
    "orders stand",
    "judge_missing": "some of the configured judges failed; the others scored",
    "reading_missing": "some of a judge's readings failed, also when they were asked for again; the others were enough "
    "for an order",
    "offline_judge": "scored by the offline judge, which has no model: to try the system, not to train on",
    "leaks_withheld": "judges confirmed `may_know_withheld`, by more than half of the readings: earns 0",
    "judges_disagree": "two judges' rewards of this completion are far apart",
    "no_answer": "the reply commits to no answer",
    "unreadable_answer": "the reply commits to something that is no answer to what was asked",
    "conflicting_boxes": "the reply boxes different numbers",
    "conflicting_answers": "the reply commits to two answers that differ",
    "malformed_call": "a tool call of the reply cannot be read, so none of its calls counts",
    "unfinished_thinking": "the reply ends inside its thinking",
    "forged_observation": "the transcript holds a line that the environment did not give: earns 0, no judge sees it",
    "after_end": "the transcript goes on after the episode's end: what came after it is ignored",
}


def reasons() -> str:
    return table(("reason", "why there is no reward"), [(code(reason), REASONS[reason]) for reason in get_args(Reason)])


def gates() -> str:
    rows = [
        (
            code(gate.flag),
            gate.notices,
            ", ".join(gate.languages),
            "any judged text" if gate.any_text else "a character's lines",
            _effect(gate),
        )
        for gate in GATES
    ]
    return table(("flag", "the reply", "works in", "applies to", "effect"), rows)


def _effect(gate: Gate) -> str:
    if gate.kind == "fail":
        return "reward 0"
    if gate.confirmed:
        return f"judges are told: reward 0 and {code(gate.confirmed)} where they confirm it"
    return "none: judges are told"


def service_flags() -> str:
    rows = [(code(flag), "group", meaning) for flag, meaning in GROUP_FLAGS.items()]
    rows += [(code(flag), "score", meaning) for flag, meaning in SCORE_FLAGS.items()]
    return table(("flag", "on", "means"), rows)


def defects() -> str:
    rows = [
        (environment.name, code(defect.code), "" if defect.cap is None else f"{defect.cap:g}", defect.description)
        for environment in environments().values()
        for defect in (environment.rubric.defects if environment.rubric is not None else ())
    ]
    return table(("environment", "flag", "reward at most", "the judge reports"), rows)
