"""Groups as rows: what is written of a group, its rollouts, scores and judgements, and how it is read again.

_Rows of groups have counts and sums over their rollouts, so that lists and statistics need not read those. Long texts
are packed beforehand, in a thread, since the writer's transaction holds up all others.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, func, select

from app.domain.groups import Group, Rollout
from app.domain.judging import Judgement, summarise_scores
from app.domain.keeping import KEPT_PARTS, KeptPart, ReducedCompletion
from app.domain.making import GroupMaking
from app.domain.runs import Policy
from app.domain.scores import Outcome, Score
from app.domain.values import SameObject, digest_of_text
from app.store.statements import (
    PACKED_FROM,
    RowValue,
    StoredText,
    decode,
    decode_json,
    encode,
    encode_json,
    from_micros,
    is_long,
    pack_completion,
    pack_text,
    to_micros,
    unpack_completion,
)
from app.store.tables import groups, rollouts

_Rows = list[dict[str, str | int | float | bytes | None]]

CALIBRATED_FIELDS: Final = ("calibrated", "calibrated_error", "uncalibrated")
"""Fields of a score that are stored in columns alone."""
_CALIBRATED: Final = set(CALIBRATED_FIELDS)


def build_origin_columns(group: Group) -> dict[str, str | int | float | None]:
    """Where a group comes from. What clients choose is JSON."""
    policy = group.policy
    return {
        "model": None if policy is None else encode_json(policy.model),
        "step": None if policy is None else policy.step,
        "lease_id": None if group.lease_id is None else encode_json(group.lease_id),
        "sender": None if group.sender is None else encode_json(group.sender),
        "hand_out_step": group.hand_out_step,
    }


def decode_name(text: str | None) -> str | None:
    return None if text is None else str(decode_json(text))


def parse_policy(row: Mapping[Any, Any]) -> Policy | None:
    model = decode_name(row["model"])
    return None if model is None else Policy.build_trusted(model=model, step=row["step"])


def encode_flags(flags: Sequence[str]) -> str:
    return encode_json(list(flags)) if flags else "[]"


def decode_flags(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(json.loads(text))


def build_sum_columns(scores: Sequence[Score]) -> dict[str, int | float | None]:
    """The columns of a group that are counts or sums over its rollouts."""
    summary = summarise_scores(scores)
    return {
        "size": len(scores),
        "scored": summary.scored,
        "unscored": summary.unscored,
        "mean": summary.mean,
        "std": summary.std,
        "reward_sum": math.fsum([reward for reward in summary.rewards if reward is not None]),
        "absolute_sum": math.fsum(summary.absolutes),
        "absolute_count": len(summary.absolutes),
        "low_signal": int(summary.low_signal),
    }


def build_group_row(group: Group, making: GroupMaking | None = None) -> dict[str, str | int | float | None]:
    return {
        "group_id": group.group_id,
        "task_id": group.task_id,
        "environment": group.environment,
        "run": group.run,
        **build_origin_columns(group),
        "purpose": group.purpose,
        "outcome": group.outcome,
        "flags": encode_flags(group.flags),
        "lag": group.lag,
        "stale": int("stale" in group.flags),
        "created_at": to_micros(group.created_at),
        "counted": 1,
        "reduced": None,
        "making": None if making is None else encode(making),
        **build_sum_columns(group.scores),
    }


@dataclass(frozen=True)
class StoredPrompt:
    digest: str
    body: StoredText


def _store_prompt(prompt: str) -> StoredPrompt:
    body = encode_json(prompt)
    return StoredPrompt(digest_of_text(body), pack_text(body))


@dataclass(frozen=True)
class GroupToStore:
    """A group on its way into the store, with the judgements made since it was last written, and how scores were made
    of these."""

    group: Group
    judgements: tuple[Judgement, ...] = ()
    making: GroupMaking | None = None
    seconds: float = 0.0
    """Time that scoring took, for the metrics."""
    packed: Mapping[str, StoredText] = field(default_factory=dict)
    """Completions as they will be stored, by rollout; without those that are written as they are."""
    prompts: Mapping[str, StoredPrompt] = field(default_factory=dict)
    """The same of judges' prompts, by themselves."""

    @property
    def has_long_texts(self) -> bool:
        return any([is_long(one.completion) for one in self.group.rollouts]) or any(
            [len(one.prompt or "") >= PACKED_FROM for one in self.judgements]
        )

    def pack(self) -> "GroupToStore":
        """With its texts as they will be stored. Call it in a thread, before the transaction."""
        made = (reading.prompt for reading in self.judgements)
        return replace(
            self,
            packed={one.rollout_id: pack_completion(one.completion) for one in self.group.rollouts},
            prompts={prompt: _store_prompt(prompt) for prompt in made if prompt},
        )


def build_rollout_rows(
    sequence: int, members: Sequence[Rollout], packed: Mapping[str, StoredText] | None = None
) -> Iterator[tuple[RowValue, ...]]:
    """For `insert_tuples`. Completions that are long are among what is `packed`."""
    for position, rollout in enumerate(members):
        rollout_id = rollout.rollout_id
        text, body = (packed or {}).get(rollout_id) or pack_text(encode(rollout.completion))
        reduced = None if rollout.reduced is None else encode(rollout.reduced)
        yield (sequence, position, rollout_id, *_list_score_values(SameObject(rollout.score)), text, reduced, body)


@lru_cache(maxsize=1024)
def _list_score_values(score: SameObject[Score]) -> tuple[RowValue, ...]:
    """Kept, since verifiers share scores between completions, and between groups."""
    return tuple(build_score_columns(score.value).values())


def build_score_columns(score: Score) -> dict[str, str | int | float | None]:
    """The columns of a rollout that scoring sets, in the order of its table."""
    return {
        "outcome": score.outcome,
        "reason": score.reason,
        "reward": score.reward,
        "gate": score.gate,
        "absolute": score.absolute,
        "relative": score.relative,
        "calibrated": score.calibrated,
        "calibrated_error": score.calibrated_error,
        "uncalibrated": score.uncalibrated,
        "score": encode(score, exclude=_CALIBRATED),
    }


def decode_score(row: RowMapping) -> Score:
    """From `score` and the columns of CALIBRATED_FIELDS."""
    score = decode(Score, row["score"])
    beside = {name: row[name] for name in CALIBRATED_FIELDS}
    return score.model_copy(update=beside) if any(value is not None for value in beside.values()) else score


@dataclass(frozen=True)
class _JudgementRows:
    prompts: _Rows
    judgements: _Rows


def build_judgement_rows(
    judgements: Sequence[tuple[int, Judgement]],
    stamp: int,
    scoring_sequence: int | None = None,
    packed: Mapping[str, StoredPrompt] | None = None,
) -> _JudgementRows:
    """Rows of judgements with the sequences of their groups, and of their scoring unless it is the group's own. Prompts
    repeat, so each text is stored once; those that are `packed` already are given by themselves."""
    bodies: dict[str, StoredText] = {}
    rows: _Rows = []
    for sequence, judgement in judgements:
        prompt_digest = None
        if judgement.prompt:
            prompt = (packed or {}).get(judgement.prompt) or _store_prompt(judgement.prompt)
            prompt_digest = prompt.digest
            bodies[prompt_digest] = prompt.body
        rows.append(
            _build_judgement_row(sequence, judgement, prompt_digest, stamp) | {"scoring_sequence": scoring_sequence}
        )
    prompts: _Rows = [{"digest": one, "body": bodies[one].text, "packed": bodies[one].packed} for one in sorted(bodies)]
    return _JudgementRows(prompts, rows)


def _build_judgement_row(
    sequence: int, judgement: Judgement, prompt_digest: str | None, stamp: int
) -> dict[str, str | int | float | bytes | None]:
    answer = pack_text(encode(judgement, exclude={"prompt", "purpose", "reduced"}))
    return {
        "group_sequence": sequence,
        "judge": judgement.judge,
        "failed": judgement.error is not None,
        "prompt_digest": prompt_digest,
        "answer": answer.text,
        "packed": answer.packed,
        "reduced": None,
        "purpose": None if judgement.purpose == "score" else judgement.purpose,
        "input_tokens": judgement.input_tokens,
        "output_tokens": judgement.output_tokens,
        "calls": judgement.calls,
        "cost_usd": judgement.cost_usd,
        "latency_seconds": judgement.latency_seconds,
        "created_at": stamp,
        "reading": judgement.reading or None,
    }


_HEAD: Final = tuple(column for column in groups.c if column is not groups.c.making)
"""Pages of single groups alone read how scores were made."""
_BESIDE: Final = tuple(rollouts.c[name] for name in CALIBRATED_FIELDS)


def load_groups(connection: Connection, statement_filter: ColumnElement[bool], limit: int | None = None) -> list[Group]:
    """Groups with their rollouts, oldest first."""
    statement = select(*_HEAD).where(statement_filter).order_by(groups.c.sequence).limit(limit)
    heads = connection.execute(statement).mappings().all()
    by_group: defaultdict[int, list[Rollout]] = defaultdict(list)
    if heads:
        columns = (
            rollouts.c[name] for name in ("group_sequence", "rollout_id", "completion", "packed", "score", "reduced")
        )
        members = (
            select(*columns, *_BESIDE)
            .where(rollouts.c.group_sequence.in_([row["sequence"] for row in heads]))
            .order_by(rollouts.c.group_sequence, rollouts.c.position)
        )
        for row in connection.execute(members).mappings():
            completion = unpack_completion(row["completion"], row["packed"])
            reduced = None if row["reduced"] is None else decode(ReducedCompletion, row["reduced"])
            by_group[row["group_sequence"]].append(
                Rollout(rollout_id=row["rollout_id"], completion=completion, score=decode_score(row), reduced=reduced)
            )
    return [parse_group(row, by_group[row["sequence"]], row["outcome"], decode_flags(row["flags"])) for row in heads]


def parse_group(row: Mapping[Any, Any], members: Sequence[Rollout], outcome: Outcome, flags: tuple[str, ...]) -> Group:
    """From a row of `groups`, or of `parts`."""
    return Group(
        group_id=row["group_id"],
        task_id=row["task_id"],
        environment=row["environment"],
        run=row["run"],
        lease_id=decode_name(row["lease_id"]),
        policy=parse_policy(row),
        purpose=row["purpose"],
        outcome=outcome,
        flags=flags,
        rollouts=tuple(members),
        created_at=from_micros(row["created_at"]),
        hand_out_step=row["hand_out_step"],
        sender=decode_name(row["sender"]),
    )


# The bits by which a group says which of its parts are not kept.

PART_BITS: Final[Mapping[KeptPart, int]] = {part: 1 << number for number, part in enumerate(KEPT_PARTS)}
ALL_BITS: Final = sum(PART_BITS.values())


def build_mask(parts: Collection[KeptPart]) -> int:
    return sum(PART_BITS[part] for part in parts)


def list_parts(mask: int | None) -> frozenset[KeptPart]:
    return frozenset(part for part, bit in PART_BITS.items() if (mask or 0) & bit)


def has_text() -> ColumnElement[bool]:
    """Whether what a group's completions said is stored."""
    return func.coalesce(groups.c.reduced, 0).bitwise_and(PART_BITS["text"]) == 0
