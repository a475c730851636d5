"""Which groups can be reduced, and what that would free."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, case, func, literal, select

from app.domain.digests import canonical_json
from app.domain.judging import Judgement
from app.domain.keeping import KEPT_PARTS, KeepRule, KeptPart
from app.domain.retention import GroupsOfRun, KeptGroups, ReducePlan, ReduceRule
from app.domain.tasks import Completion
from app.store.group_sizes import SAMPLES, GroupKind, draw_groups, match_kind
from app.store.judge_tables import judgements
from app.store.packing import (
    StoredText,
    measure_stored,
    pack_completion,
    pack_text,
    unpack_completion,
    unpack_text,
)
from app.store.pruning import GROUP_KIND, add_up_runs, build_reason, choose_groups
from app.store.reduced_parts import build_mask, list_parts
from app.store.rows import decode, encode_json
from app.store.tables import groups, prompts, rollouts, runs

_DIGEST_BYTES: Final = 110
"""About what stands in the place of a part."""


def load_keep_rules(connection: Connection) -> dict[str, KeepRule]:
    """By run, of those that have one."""
    found = select(runs.c.name, runs.c.keep).where(runs.c.keep.is_not(None)).order_by(runs.c.name)
    return {name: decode(KeepRule, body) for name, body in connection.execute(found)}


def build_reduction_reason() -> ColumnElement[str | None]:
    return case((groups.c.outcome == "unscored", "unscored"), else_=build_reason(("train",)))


def choose_reducible(rule: ReduceRule, of_runs: Mapping[str, KeepRule]) -> list[ColumnElement[bool]]:
    """Those that have parts which do not stay in every group."""
    general: ColumnElement[int] = literal(build_mask(rule.keep.reducible))
    own = [(groups.c.run == name, literal(build_mask(keep.reducible))) for name, keep in of_runs.items()]
    wanted = case(*own, else_=general) if own else general
    return [*choose_groups(rule), func.coalesce(groups.c.reduced, 0).bitwise_and(wanted) != wanted]


def plan_reduction(connection: Connection, rule: ReduceRule) -> ReducePlan:
    of_runs = load_keep_rules(connection)
    plan = ReducePlan(rule=rule, of_runs=of_runs)
    if not rule.keep.reducible and not any(keep.reducible for keep in of_runs.values()):
        return plan
    chosen = choose_reducible(rule, of_runs)
    reason = build_reduction_reason().label("reason")
    marked = select(*GROUP_KIND, groups.c.size, groups.c.sequence, reason).where(*chosen).subquery()
    kind = [marked.c[column.name] for column in GROUP_KIND]
    counts = (
        select(*kind, marked.c.reason, func.count(), func.sum(marked.c.size), func.max(marked.c.sequence))
        .group_by(*kind, marked.c.reason)
        .order_by(*kind)
    )
    found, kept, parts = [], Counter[Any](), Counter[KeptPart]()
    last = 0
    may_be = [*chosen, build_reduction_reason().is_(None)]
    for *names, because, count, size, newest in connection.execute(counts).all():
        if because is not None:
            kept[because] += count
            continue
        own = GroupKind(*names)
        going = _find_going(connection, own, plan.find_rule(own.run), may_be, (count, size, newest))
        if not going.groups:
            continue
        last = max(last, going.newest)
        sums = {part: round(going.groups * mean) for part, mean in _estimate_freed(connection, going.drawn).items()}
        parts.update(sums)
        found.append(
            GroupsOfRun.model_validate(
                {"run": own.run, "environment": own.environment, "purpose": own.purpose, "bytes": sum(sums.values())}
                | {"groups": going.groups, "rollouts": going.rollouts}
            )
        )
    return plan.model_copy(
        update={
            "reducible": tuple(add_up_runs(found)),
            "parts": {part: parts[part] for part in KEPT_PARTS if parts[part]},
            "kept": tuple(KeptGroups(because=because, groups=kept[because]) for because in sorted(kept)),
            "last": last,
        }
    )


@dataclass(frozen=True)
class _GoingGroups:
    """The groups of a kind that lose parts. `drawn` are some of them, with the parts."""

    groups: int
    rollouts: int
    newest: int
    drawn: Mapping[int, frozenset[KeptPart]]


def _find_going(
    connection: Connection,
    kind: GroupKind,
    keep: KeepRule,
    where: Sequence[ColumnElement[bool]],
    counted: tuple[int, int, int],
) -> _GoingGroups:
    """Where a part is kept in a sample, each group has to be looked at: the database cannot draw it."""
    missing = list_parts(kind.reduced)
    read = select(groups.c.sequence, groups.c.size, groups.c.group_id).order_by(groups.c.sequence)
    if keep.reducible == frozenset(part for part in KEPT_PARTS if keep.get(part) == "digest"):
        drawn = connection.execute(read.where(groups.c.sequence.in_(draw_groups(connection, kind, *where)))).all()
        return _GoingGroups(*counted, {one.sequence: keep.reducible - missing for one in drawn})
    going: list[tuple[int, int, frozenset[KeptPart]]] = []
    for sequence, size, group_id in connection.execute(read.where(*match_kind(kind), *where)):
        if parts := keep.choose_parts(group_id) - missing:
            going.append((sequence, size, parts))
    ends = (*going[: SAMPLES // 2], *going[-SAMPLES // 2 :])
    return _GoingGroups(
        groups=len(going),
        rollouts=sum(size for _, size, _ in going),
        newest=going[-1][0] if going else 0,
        drawn={sequence: parts for sequence, _, parts in ends},
    )


_PROMPT: Final = (prompts.c.body, prompts.c.packed.label("packed_body"))


def _estimate_freed(connection: Connection, drawn: Mapping[int, frozenset[KeptPart]]) -> dict[KeptPart, float]:
    """The mean of some groups, by part. A prompt that others share counts for each."""
    sums: Counter[KeptPart] = Counter()
    said = select(rollouts.c.group_sequence, rollouts.c.completion, rollouts.c.packed)
    for sequence, body, packed in connection.execute(said.where(rollouts.c.group_sequence.in_(drawn))):
        completion = unpack_completion(body, packed)
        sizes = _measure_parts(completion) if packed is None else _measure_packed_parts(completion)
        sums.update({part: size for part, size in sizes.items() if part in drawn[sequence]})
    asked = (
        select(judgements.c.group_sequence, judgements.c.answer, judgements.c.packed, *_PROMPT)
        .join_from(judgements, prompts, judgements.c.prompt_digest == prompts.c.digest, isouter=True)
        .where(judgements.c.group_sequence.in_(drawn))
    )
    for sequence, answer, packed, prompt, packed_prompt in connection.execute(asked):
        if "judge_prompts" in drawn[sequence]:
            raw = pack_text(encode_json(decode(Judgement, unpack_text(answer, packed)).raw))
            size = measure_stored(StoredText(prompt or "", packed_prompt)) + measure_stored(raw)
            sums["judge_prompts"] += max(0, size - _DIGEST_BYTES)
    return {part: sums[part] / len(drawn) for part in sums}


def _measure_parts(completion: Completion) -> dict[KeptPart, int]:
    messages = completion.messages or ()
    thoughts = "".join(one.reasoning_content or "" for one in messages)
    text = completion.text
    if text is None:
        text = canonical_json([one.model_dump(mode="json", exclude={"reasoning_content"}) for one in messages])
    sizes: dict[KeptPart, int] = {
        "text": len(text.encode("utf-8", "replace")),
        "thought": len(thoughts.encode("utf-8", "replace")),
        "tokens": len(canonical_json(list(completion.token_ids or ()))),
        "logprobs": len(canonical_json(list(completion.logprobs or ()))),
    }
    return {part: max(0, size - _DIGEST_BYTES) for part, size in sizes.items()}


def _measure_packed_parts(completion: Completion) -> dict[KeptPart, int]:
    """Each packed alone, which is about what it takes among the others."""
    thoughts = [one.reasoning_content or "" for one in completion.messages or ()]
    bare = Completion(text="")
    stages: dict[KeptPart, dict[str, object]] = {
        "text": {"text": completion.text, "messages": completion.messages},
        "tokens": {"token_ids": completion.token_ids},
        "logprobs": {"token_ids": completion.token_ids, "logprobs": completion.logprobs},
    }
    sizes = {part: measure_stored(pack_completion(bare.model_copy(update=kept))) for part, kept in stages.items()}
    thought = measure_stored(pack_text(encode_json("".join(thoughts)))) if any(thoughts) else 0
    parts: dict[KeptPart, int] = {
        "text": sizes["text"] - thought,
        "thought": thought,
        "tokens": sizes["tokens"],
        "logprobs": sizes["logprobs"] - sizes["tokens"],
    }
    return {part: max(0, size - _DIGEST_BYTES) for part, size in parts.items()}
