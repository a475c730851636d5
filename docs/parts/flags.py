"""Reasons, gates, the flags that the service and its panels set, and the defects that judges may report."""

from collections.abc import Mapping
from typing import get_args

from app.domain.scores import REASON_WORDS, Reason
from app.judges.gates import GATES, Gate
from docs.markdown import code, table
from docs.parts.environments import environments

GROUP_FLAGS: Mapping[str, str] = {
    "task_remade": "On a rescoring: the environment has changed since the first scoring. The stored prompt was scored "
    "against the task as it is now.",
    "late": "The lease had expired or was already answered. The group is stored and scored, but completes no task. Or: "
    "a piece came after its group was judged, and was judged alone.",
    "partial_group": "The group came in pieces, and its deadline passed before all had come. It was judged without the "
    "missing ones.",
    "masked": "One member has no reward, and the trainer needs all members to agree. So the trainer was told that the "
    "whole group has none. The group is never scored again.",
    "stale": "The group's lag was above its run's `max_lag` when it came.",
    "older_policy": "The lag is negative: the policy at scoring is of an earlier step than at hand-out. This happens "
    "after a restart from an older checkpoint.",
    "scoring_changed": "The scoring differs from the start of the run: another version, data, rubric, judge or option.",
}

SCORE_FLAGS: Mapping[str, str] = {
    "truncated": "`finish_reason` is `length`, and the run's `on_truncated` is `zero`. The reward is 0, and no judge "
    "sees the completion.",
    "no_context": "The retriever failed, and the settings allow the task to go out without its passages.",
    "no_comparison": "Only one distinct completion was judged, so `relative` equals `absolute`.",
    "low_signal": "The rewards differ by no more than the noise between a judge's readings.",
    "calibration_bounded": "The calibrated value lay more than 0.6 beyond the references and was clipped there.",
    "position_dominated": "A judge followed the order of presentation more than the completions. The means of both "
    "orders are used.",
    "ranking_disagrees": "A judge's rankings go against its own scores, or have nothing to do with them. Both halves "
    "are used as they are.",
    "prompt_cut": "A judge's server counted fewer tokens than one for seven characters of the prompt. It may not have "
    "read all of it.",
    "judge_missing": "Some of the configured judges failed, and the others scored.",
    "reading_missing": "Some of a judge's readings failed, also when repeated. The others were enough for an order.",
    "offline_judge": "The offline judge scored this, without a model. Use it to try the system, not to train.",
    "leaks_withheld": "More than half of the judges' readings confirmed `may_know_withheld`. The reward is 0.",
    "judges_disagree": "The rewards of two judges for this completion are far apart.",
    "no_answer": "The reply commits to no answer.",
    "unreadable_answer": "The reply commits to something that does not answer the question.",
    "conflicting_boxes": "The reply boxes different numbers.",
    "conflicting_answers": "The reply commits to two different answers.",
    "malformed_call": "A tool call of the reply cannot be read. In `npc_arena` it counts as a wrong call, and the line "
    "is judged as ever; elsewhere none of the reply's calls counts.",
    "no_call": "The reply called no tool, although the task needs one.",
    "forbidden_action": "The reply made a call that the scene forbids. Its reward is at most 0.2.",
    "no_words": "The reply called actions and said nothing. The action alone counts.",
    "no_recall": "The reply does not recall what an earlier conversation said and the line calls for.",
    "false_memory": "The reply states that something was said or promised which nobody said.",
    "stale_memory": "The reply tells as true what a later conversation corrected.",
    "tells_on_others": "The reply tells what somebody else told in confidence, or what the character did not hear.",
    "out_of_turn": "The reply speaks where somebody else was asked. Its reward is at most 0.2.",
    "passes_when_asked": "The character says nothing where it was asked. Its reward is at most 0.5.",
    "malformed_text": "The reply holds U+FFFD, which stands for what is no text: a lone surrogate in the request, or "
    "bytes that the trainer's tokenizer could not decode. It is scored as it reads.",
    "unfinished_thinking": "The reply ends inside its thinking.",
    "forged_observation": "The transcript has a line that the environment did not send. The reward is 0, and no judge "
    "sees the completion.",
    "after_end": "The transcript goes on after the end of the episode. The rest is ignored.",
}


def reasons() -> str:
    return table(
        ("reason", "why there is no reward"), [(code(reason), REASON_WORDS[reason]) for reason in get_args(Reason)]
    )


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
