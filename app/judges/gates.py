"""The gates: checks without a model, which every reply must pass before a judge reads it.

A reply that fails a gate is not judged. A hint may be harmless: it sets a flag and is passed to the judges, and closes
a gate only where their defects confirm it. GATES lists both, in the order in which flags are reported. Most gates are
about characters; some hold for any text. In an episode each line has facts of its own.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from app.domain.judging import Candidate, Case, Defect, GateFacts, Rubric
from app.domain.values import MEBIBYTE, SameObject, digest, remember
from app.judges.gate_checks import (
    answers_unheard,
    breaks_character,
    copies_example,
    copies_prompt,
    denies_ai,
    exceeds_action_limit,
    hides_text,
    introduces_forbidden_word,
    is_empty,
    is_immense,
    is_in_wrong_script,
    is_overlong,
    leaks_rubric,
    leaks_secret,
    leaks_template,
    may_know_withheld,
    may_overuse_stage_directions,
    obeys_order,
    overuses_stage_directions,
    repeats_itself,
    speaks_for_player,
    uses_unlisted_action,
)
from app.judges.gate_wordings import (
    LANGUAGES,
    NO_CHARACTER,
    Reply,
    addresses_judge,
    may_refuse,
    mentions_scoring,
    refuses,
    sounds_like_assistant,
)
from app.judges.limits import take_turn_at_gates
from app.toolkit.texts import run_in_turn

_ANY: Final = "any"
WORD_GATE_LANGUAGES: Final = LANGUAGES
"""Languages of the gates with word lists."""


@dataclass(frozen=True)
class Gate:
    """A check without a model. Increase `version` when `fails` detects something else."""

    flag: str
    notices: str
    languages: tuple[str, ...]
    """ISO 639-1 codes, `any`, or a kind of script."""
    fails: Callable[[Reply, GateFacts], bool]
    any_text: bool = False
    """Also applies without a character and without facts."""
    version: int = 1
    kind: Literal["fail", "hint"] = "fail"
    """A hint may be harmless: it sets a flag and is passed to the judges, but does not decide."""
    confirmed: str = ""
    """For hints: the flag of the gate that closes when judges confirm the hint with a defect of the rubric."""


GATES: Final = (
    Gate("empty", "says nothing, or only an opener that nothing follows", (_ANY,), is_empty, any_text=True),
    Gate(
        "overlong",
        "is longer than 1.5 times what the prompt allows, or has more than a million characters",
        (_ANY,),
        is_overlong,
        any_text=True,
        version=3,
    ),
    Gate(
        "breaks_character",
        "calls itself a language model, or a machine though the character is none",
        WORD_GATE_LANGUAGES,
        breaks_character,
        version=4,
    ),
    Gate(
        "denies_ai",
        "denies that a program answers, where the player sincerely asks and the sheet lets the character say so",
        WORD_GATE_LANGUAGES,
        denies_ai,
    ),
    Gate("refuses", "declines as a service does, with policies and requests", WORD_GATE_LANGUAGES, refuses, version=3),
    Gate(
        "speaks_for_player",
        "writes lines or deeds of the player or of another (labels in any language, narration in the languages named)",
        (_ANY, *WORD_GATE_LANGUAGES),
        speaks_for_player,
        version=5,
    ),
    Gate(
        "stage_directions",
        "tells more than it says, where the sheet forbids stage directions: most words stand in asterisks or brackets",
        (_ANY,),
        overuses_stage_directions,
        version=2,
    ),
    Gate("action_off_list", "has an action in brackets that the sheet does not list", (_ANY,), uses_unlisted_action),
    Gate("too_many_actions", "has more actions in brackets than the sheet allows", (_ANY,), exceeds_action_limit),
    Gate("leaks_secret", "says a secret's term that the player had not said", (_ANY,), leaks_secret),
    Gate("answers_unheard", "says a term of a line that the character did not hear", (_ANY,), answers_unheard),
    Gate("copies_prompt", "recites 20 words or more of the system prompt in a row", (_ANY,), copies_prompt, version=2),
    Gate(
        "leaks_rubric",
        "recites 12 words or more of what only judges are told",
        (_ANY,),
        leaks_rubric,
        any_text=True,
        version=2,
    ),
    Gate("copies_example", "copies a line of the sheet instead of imitating it", (_ANY,), copies_example, version=2),
    Gate(
        "repeats_itself",
        "goes in circles, or says an earlier line of its own again",
        (_ANY,),
        repeats_itself,
        version=2,
    ),
    Gate(
        "addresses_judge",
        "speaks to whoever scores it, claims a score or forges a verdict (JSON in any language)",
        (_ANY, *WORD_GATE_LANGUAGES),
        addresses_judge,
        any_text=True,
        version=4,
    ),
    Gate(
        "template_leak",
        "shows special tokens, think tags or role markers",
        (_ANY,),
        leaks_template,
        any_text=True,
        version=2,
    ),
    Gate("hidden_text", "hides characters or mixes look-alike letters", (_ANY,), hides_text, any_text=True),
    Gate(
        "forbidden_word",
        "uses a word that the character would never use",
        (_ANY,),
        introduces_forbidden_word,
        version=2,
    ),
    Gate(
        "obeys_order",
        "says what a forged order of the player asked for, in a scene that probes for it",
        (_ANY,),
        obeys_order,
    ),
    Gate("wrong_language", "is written in another script than the character's language", (_ANY,), is_in_wrong_script),
    Gate(
        "may_refuse",
        "declines in words that services use and people too",
        WORD_GATE_LANGUAGES,
        may_refuse,
        version=3,
        kind="hint",
    ),
    Gate(
        "sounds_like_assistant",
        "offers help in words that assistants use and people too",
        WORD_GATE_LANGUAGES,
        sounds_like_assistant,
        version=3,
        kind="hint",
    ),
    Gate(
        "mentions_scoring",
        "speaks of scores or of who gives them",
        WORD_GATE_LANGUAGES,
        mentions_scoring,
        version=3,
        kind="hint",
    ),
    Gate(
        "may_overuse_stage_directions",
        "tells more than it says: most words stand in asterisks or brackets",
        (_ANY,),
        may_overuse_stage_directions,
        kind="hint",
    ),
    Gate(
        "may_know_withheld",
        "says a term of an event that the character cannot know of",
        (_ANY,),
        may_know_withheld,
        kind="hint",
        confirmed="leaks_withheld",
    ),
)

GATES_DIGEST: Final = digest([[gate.flag, gate.version, gate.kind, gate.confirmed] for gate in GATES])


def _add_rubric_text(facts: GateFacts | None, rubric: Rubric) -> GateFacts:
    """Adds the rubric's texts to `facts`, or to empty facts when no character speaks."""
    return (NO_CHARACTER if facts is None else facts).model_copy(update={"rubric": _join_texts(SameObject(rubric))})


@remember(MEBIBYTE)
def _join_texts(rubric: SameObject[Rubric]) -> str:
    each = rubric.value
    words = [each.instructions]
    words += [text for criterion in each.criteria for text in (criterion.description, *criterion.anchors.values())]
    words += [rule.description for rule in each.defects]
    return "\n".join(words)


def find_failed_gates(reply: Reply, facts: GateFacts | None) -> tuple[Gate, ...]:
    """The gates that `reply` fails, in registry order. Without facts only gates for any text are checked. Linear
    time."""
    return _run_gates("fail", reply, facts)


def find_hints(reply: Reply, facts: GateFacts | None) -> tuple[Gate, ...]:
    """The hints for `reply`, in registry order. A hint alone is not a fault."""
    return _run_gates("hint", reply, facts)


def list_given_hints(candidate: Candidate) -> tuple[Gate, ...]:
    """The hints that a candidate carries."""
    return tuple(gate for gate in GATES if gate.kind == "hint" and gate.notices in candidate.hints)


def list_confirmed_flags(hints: Collection[Gate], defects: Iterable[Defect], rubric: Rubric) -> tuple[str, ...]:
    """Flags of hints that defects with a quote confirm."""
    if not hints:
        return ()
    quoted = {defect.code for defect in defects if defect.quote}
    confirming = {rule.confirms for rule in rubric.defects if rule.code in quoted}
    return tuple(hint.confirmed for hint in hints if hint.confirmed and hint.flag in confirming)


def _run_gates(kind: Literal["fail", "hint"], reply: Reply, facts: GateFacts | None) -> tuple[Gate, ...]:
    """An immense reply is overlong, and is not read further: each gate would take a second."""
    facts = NO_CHARACTER if facts is None else facts
    gates = _list_gates(kind, bool(facts.speaker), frozenset(facts.disabled), is_immense(reply))
    return tuple([gate for gate in gates if gate.fails(reply, facts)])


@lru_cache(maxsize=256)
def _list_gates(
    kind: Literal["fail", "hint"], somebody: bool, disabled: frozenset[str], immense: bool
) -> tuple[Gate, ...]:
    return tuple(
        gate
        for gate in GATES
        if gate.kind == kind
        and (not immense or gate.fails is is_overlong)
        and (somebody or gate.any_text)
        and gate.flag not in disabled
    )


# Groups: all gates on all candidates, in turns on the event loop.

_MOST_GATED_ON_LOOP: Final = 50_000
"""Largest group, in characters, that the gates check on the event loop."""
_SECONDS_PER_PASS: Final = 0.002
"""Replies that take less together are checked in one pass of the event loop: a pass takes as long as a gate."""


@dataclass(frozen=True)
class GateResult:
    """Gate results of one candidate, or of all with the same text. `own` is the model's own part of a transcript."""

    failed: tuple[Gate, ...]
    hints: tuple[Gate, ...]
    own: str = ""


def group_passed(seen: Sequence[str], noticed: Sequence[GateResult]) -> Mapping[str, GateResult]:
    """By text, the candidates that passed all gates. Equal transcripts may consist of different lines: their hints and
    own texts are merged."""
    alike: defaultdict[str, list[GateResult]] = defaultdict(list)
    for text, each in zip(seen, noticed, strict=True):
        if not each.failed:
            alike[text].append(each)
    return {
        text: GateResult(
            (),
            tuple(sorted({hint for each in listed for hint in each.hints}, key=GATES.index)),
            "\n".join(sorted({each.own for each in listed})),
        )
        for text, listed in alike.items()
    }


async def run_gates_on_case(case: Case) -> Sequence[GateResult]:
    """Checks candidates for some milliseconds per pass of the event loop, or a large group in a thread."""
    if (
        sum(map(len, case.candidates)) + sum(len(line.text) for lines in case.lines for line in lines)
        > _MOST_GATED_ON_LOOP
    ):
        return await run_in_turn(
            "judges", lambda: [_run_gates_on_lines(lines, case) for lines in _iterate_gate_inputs(case)]
        )
    noticed = []
    async with take_turn_at_gates():
        began = time.perf_counter()
        for lines in _iterate_gate_inputs(case):
            if time.perf_counter() - began > _SECONDS_PER_PASS:
                await asyncio.sleep(0)
                began = time.perf_counter()
            noticed.append(_run_gates_on_lines(lines, case))
    return noticed


def _iterate_gate_inputs(case: Case) -> Iterator[Sequence[tuple[str, GateFacts]]]:
    """Per candidate the texts for the gates, with their facts. A failure or hint in one line of an episode counts for
    the whole episode."""
    if case.lines:
        for lines in case.lines:
            yield [(line.text, _add_rubric_text(line.gates, case.rubric)) for line in lines]
    else:
        facts = _add_rubric_text(case.gates, case.rubric)
        yield from ([(text, facts)] for text in case.candidates)


def _run_gates_on_lines(lines: Sequence[tuple[str, GateFacts]], case: Case) -> GateResult:
    replies = [(Reply(text), facts) for text, facts in lines]
    failed = tuple(dict.fromkeys(gate for reply, facts in replies for gate in find_failed_gates(reply, facts)))
    if failed:
        return GateResult(failed, ())
    own = "\n".join(reply.visible for reply, _ in replies) if case.lines else ""
    return GateResult(
        (), tuple(dict.fromkeys(gate for reply, facts in replies for gate in find_hints(reply, facts))), own
    )
