"""Tasks from rows of IFEval: what a reply breaks, in the meaning that was chosen."""

from collections.abc import Sequence
from typing import Literal

from app.domain.values import Frozen
from app.envs.instruction_following.constraints.text_units import MOST_CHARACTERS, parse_text
from app.envs.instruction_following.ifeval_arguments import IfevalInstruction
from app.envs.instruction_following.ifeval_checks import is_followed, is_loosely_followed
from app.envs.instruction_following.ifeval_golds import compose_reply
from app.envs.instruction_following.ifeval_own_checks import find_emptiness, find_own_fault

Strictness = Literal["ours", "published", "loose"]


class IfevalTask(Frozen):
    prompt: str
    instructions: tuple[IfevalInstruction, ...]
    strictness: Strictness


def find_ifeval_faults(reply: str, asked: IfevalTask) -> tuple[str, Sequence[str]]:
    """Why it counts as no reply at all, and one fault per instruction; empty where there is none."""
    if len(reply) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS:,} characters", ()
    if not reply.strip():
        return "it is empty", ()
    if asked.strictness == "ours":
        reading = parse_text(reply)
        lacks = find_emptiness(reading, asked.prompt, asked.instructions)
        return lacks, [find_own_fault(reading, instruction) for instruction in asked.instructions]
    check = is_followed if asked.strictness == "published" else is_loosely_followed
    return "", ["" if check(reply, one) else f"{one.id} is not followed" for one in asked.instructions]


def write_ifeval_gold(asked: IfevalTask) -> str | None:
    """A reply that follows everything, if one can be put together."""
    text = compose_reply(asked.instructions)
    lacks, broken = find_ifeval_faults(text, asked)
    return None if lacks or any(broken) or not broken else text
