"""Why rewards are low, told from counts while it happens, in three sentences at most; and whether a run began so badly
that somebody should look.

The counts are measures of rollups, so that a page, the health of a run and a command that scores by itself tell the
same of the same groups.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from app.domain.rollups import Rollup
from app.domain.runs import Purpose
from app.domain.scores import REASON_WORDS, Reason
from app.domain.values import Frozen

MOST_SENTENCES: Final = 3
GROUPS_TOLD: Final = 64
"""How many of the newest groups of a run are told of, and by how many of its first ones its beginning is judged."""
_FEWEST_REPLIES: Final = 8
"""Of fewer replies nothing is told."""
_FEWEST_GROUPS: Final = 10
"""Of fewer groups it says little that their rewards are equal."""
_FEWEST_FOUND: Final = 4
_LEAST_SHARE: Final = 0.2
"""Rarer causes are left to the curves."""
_MOST: Final = 0.5

_CAUSES: Final[Mapping[str, str]] = {
    "truncated": "were cut off before their end",
    "unfinished_thinking": "ended inside their thinking",
    "no_answer": "gave no answer in the form asked for",
    "unreadable_answer": "gave an answer that cannot be read",
    "conflicting_boxes": "boxed different answers",
    "conflicting_answers": "gave different answers",
    "malformed_call": "made a tool call that cannot be read",
    "no_call": "called no tool (where the policy's chat template shows none, ask for `tool_format: hermes`, and of "
    "`npc_arena` for `actions: without`)",
    "forged_observation": "wrote what only the environment may send",
}
"""Flags that say by themselves why a reply earned nothing, beside those of gates."""


class Finding(Frozen):
    """One cause of low rewards. `flag` or `reason` finds its groups in their list; both are empty where nothing says
    why."""

    sentence: str
    count: int
    """Replies that it is true of."""
    flag: str = ""
    reason: Reason | None = None


def explain_low_rewards(
    counts: Rollup, *, max_tokens: int | None = None, purpose: Purpose = "train"
) -> tuple[Finding, ...]:
    """What most often keeps the replies of these groups from a reward, commonest first. `max_tokens` is the limit that
    they were sampled with, where it is known. Flags in it may be a plug-in's."""
    replies = counts.count("rollouts")
    if replies < _FEWEST_REPLIES:
        return ()
    fewest = max(_FEWEST_FOUND, _LEAST_SHARE * replies)
    causes = [one for one in _list_causes(counts, max_tokens) if one.count >= fewest]
    if causes:
        return tuple(sorted(causes, key=lambda one: -one.count)[:MOST_SENTENCES])
    return tuple(_describe_equal_rewards(counts, purpose))


def _list_causes(counts: Rollup, max_tokens: int | None) -> Iterator[Finding]:
    of = f"of {counts.count('rollouts'):,} replies"
    for reason, words in REASON_WORDS.items():
        count = counts.count(f"unscored:{reason}")
        why = f"{words[:1].lower()}{words[1:]}"
        yield Finding(sentence=f"{count:,} {of} have no score: {why}", count=count, reason=reason)
    gates = {name.partition(":")[2] for name in counts.list_names("gate_flag:")}
    for flag in sorted(gates | _CAUSES.keys()):
        count = counts.count(f"flag:{flag}" if flag in _CAUSES else f"gate_flag:{flag}")
        words = _CAUSES.get(flag, f"got 0 from the gate `{flag}`")
        if flag == "truncated" and max_tokens is not None:
            words = f"were cut off: the limit is {max_tokens:,} tokens"
        yield Finding(sentence=f"{count:,} {of} {words}.", count=count, flag=flag)


def _describe_equal_rewards(counts: Rollup, purpose: Purpose) -> Iterator[Finding]:
    scored = counts.count("scored")
    if counts.count("groups") < _FEWEST_GROUPS:
        return
    if scored and counts.mean("reward") == 0:
        yield Finding(sentence=f"All {scored:,} rewards are 0, and no flag says why: read some replies.", count=scored)
    elif purpose == "train" and _are_all_equal(counts):
        groups = counts.count("spread")
        sentence = f"The rewards within each of {groups:,} groups are equal: a trainer learns nothing from them."
        yield Finding(sentence=sentence, count=scored)


def _are_all_equal(counts: Rollup) -> bool:
    """Within each group with two rewards or more."""
    return counts.mean("spread") == 0


# The beginning of a run.


class BadBeginning(NamedTuple):
    """`share` is how much of it is so, and `limit` from where on that is an alarm."""

    share: float
    limit: float
    evidence: str


def judge_beginning(counts: Rollup) -> BadBeginning | None:
    """Of the first groups of a run. None where they leave something to learn."""
    unscored, gated = counts.share("unscored", "rollouts") or 0.0, counts.share("gated") or 0.0
    groups = f"the first {counts.count('groups'):,} groups"
    if unscored > _MOST:
        found = BadBeginning(unscored, _MOST, f"{unscored:.0%} of the replies of {groups} have no score.")
    elif counts.mean("reward") == 0:
        found = BadBeginning(1.0, 1.0, f"All rewards of {groups} are 0.")
    elif gated > _MOST:
        found = BadBeginning(gated, _MOST, f"{gated:.0%} of the replies of {groups} were set to 0 by a gate.")
    elif _are_all_equal(counts):
        found = BadBeginning(1.0, 1.0, f"The rewards within each of {groups} are equal.")
    else:
        return None
    causes = [one.sentence for one in explain_low_rewards(counts) if one.flag or one.reason]
    return found._replace(evidence=" ".join([found.evidence, *causes]))
