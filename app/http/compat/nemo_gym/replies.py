"""The reply to `/verify`: the request as it came, byte for byte, and after it what was measured."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from app.domain.scores import Reason
from app.domain.tasks import Message
from app.http.compat.nemo_gym.requests import VerifyRequest
from app.http.compat.one_sample.reward_service import SampleReward

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")
_KINDS: Final[dict[Reason | None, str]] = {
    "judge_failed": "judge_failed",
    "verifier_failed": "verifier_error",
    "verifier_killed": "verifier_error",
    None: "cohort_incomplete",
}
"""In NeMo Gym's words; it takes others with a name of ours before them."""


class VerifyReply:
    """Trainers take their tokens from the response that comes back, so it is not written anew. Where the row has a key
    of ours already, ours comes later, which is the one that counts."""

    def __init__(self, asked: VerifyRequest, body: bytes) -> None:
        self._asked = asked
        self._body = body

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes:
        (reward,) = rewards
        told = self._describe_failure(reward) if reward.is_unscored else _describe_score(reward)
        added = {"reward": reward.number, "mask_sample": reward.is_unscored, **told, "group_id": reward.reply.group_id}
        text = json.dumps(added, ensure_ascii=False, allow_nan=False)
        return self._body.rstrip()[:-1].rstrip() + b", " + text[1:].encode()

    def format_refusal(self, count: int) -> dict[str, JsonValue]:
        return {}

    def _describe_failure(self, reward: SampleReward) -> dict[str, JsonValue]:
        """Also in the places where earlier trainers look. The class has the row collected again."""
        reason = reward.score.reason
        kind = _KINDS.get(reason, f"atropos:{reason}")
        own = self._asked.instance_config if isinstance(self._asked.instance_config, dict) else {}
        why = f"no score ({reason}): {reward.score.rationale}" if reason else "another member of the group has no score"
        return {
            "failure_kind": kind,
            "failure_reason": why[:2000],
            "instance_config": {**own, "mask_sample": True},
            "_ng_failure_class": "judge_failed",
            "_ng_failure_judge_error": why[:2000],
        }


@dataclass(frozen=True)
class StepReply:
    """The reply to the last step of an episode."""

    truncated: bool

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes:
        (reward,) = rewards
        told = {
            "observation": None,
            "reward": reward.number,
            "terminated": not self.truncated,
            "truncated": self.truncated,
            "info": {**_describe_score(reward), "group_id": reward.reply.group_id},
        }
        return json.dumps(told, ensure_ascii=False, allow_nan=False).encode()

    def format_refusal(self, count: int) -> dict[str, JsonValue]:
        return {}


def describe_turn(observed: Sequence[Message]) -> dict[str, JsonValue]:
    """The reply to a step that does not end the episode."""
    texts = [one.content for one in observed if one.role != "tool" and one.content]
    outputs: list[JsonValue] = [
        {"call_id": one.tool_call_id or "", "output": one.content or ""} for one in observed if one.role == "tool"
    ]
    return {
        "observation": "\n\n".join(texts) or None,
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
        "info": {"tool_outputs": outputs},
    }


def _describe_score(reward: SampleReward) -> dict[str, JsonValue]:
    score = reward.score
    criteria: dict[str, JsonValue] = {
        f"criterion_{_UNSAFE.sub('_', one.name)}": one.value for one in score.criteria if one.value is not None
    }
    return {
        "failure_kind": None,
        "failure_reason": None,
        "absolute": reward.gated_absolute,
        **criteria,
        "flags": list(dict.fromkeys((*score.flags, *reward.reply.flags))),
        "rationale": score.rationale,
    }
