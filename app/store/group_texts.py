"""The words of a group: of its prompt, and of each completion with its rationale.

Before them stand tags, of its environment, run and model, and of each flag. They depend on nothing but what is stored,
so that the index can be told what to forget.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final

from pydantic import JsonValue
from sqlalchemy import Connection, select, update

from app.domain.tasks import Completion, Message
from app.domain.text_search import share_words
from app.store.group_rows import GroupHead
from app.store.group_words import GAP, Words, remove_words, tag
from app.store.packing import unpack_completion, unpack_text
from app.store.rows import decode, decode_json
from app.store.tables import groups, prompts, rollouts, tasks
from app.store.text_tables import group_texts

MOST_WORDS: Final = 16_000
"""Of a group. A tsvector knows the places of as many."""
MOST_TAGS: Final = 100
MOST_BYTES: Final = 400_000
"""A tsvector takes a megabyte at most."""


def load_words(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[str, ...]]:
    """What cannot be read has no words."""
    texts: defaultdict[int, list[str]] = defaultdict(list)
    tags: defaultdict[int, list[str]] = defaultdict(list)
    of_group = (groups.c[name] for name in ("sequence", "environment", "run", "head"))
    asked = (
        select(*of_group, prompts.c.body, prompts.c.packed)
        .join_from(groups, tasks, tasks.c.task_id == groups.c.task_id)
        .join(prompts, prompts.c.digest == tasks.c.prompt_digest)
        .where(groups.c.sequence.in_(sequences))
    )
    for row in connection.execute(asked):
        with suppress(ValueError):
            tags[row.sequence] += _tag_group(row.environment, row.run, decode(GroupHead, row.head))
            texts[row.sequence] += _read_prompt(decode_json(unpack_text(row.body, row.packed)))
    read = (rollouts.c[name] for name in ("group_sequence", "completion", "packed", "score"))
    members = select(*read).where(rollouts.c.group_sequence.in_(sequences))
    for row in connection.execute(members.order_by(rollouts.c.group_sequence, rollouts.c.position)):
        with suppress(ValueError):
            flags, rationale = _read_score(row.score)
            tags[row.group_sequence] += (tag("flag", flag) for flag in flags)
            texts[row.group_sequence] += _read_completion(unpack_completion(row.completion, row.packed))
            texts[row.group_sequence] += (rationale,) if rationale else ()
    return {one: (*_choose_tags(tags[one]), *_choose_words(texts[one])) for one in sequences}


def _tag_group(environment: str, run: str | None, head: GroupHead) -> Iterator[str]:
    yield tag("environment", environment)
    if run is not None:
        yield tag("run", run)
    if head.policy is not None:
        yield tag("model", head.policy.model)
    yield from (tag("flag", flag) for flag in head.flags)


def _choose_tags(tags: Sequence[str]) -> tuple[str, ...]:
    return (*[*dict.fromkeys(tags)][:MOST_TAGS], GAP)


def _choose_words(texts: Collection[str]) -> tuple[str, ...]:
    words: list[str] = []
    size = 0
    for terms in share_words(dict.fromkeys(texts), MOST_WORDS - len(texts)):
        size += sum(len(term.encode()) for term in terms)
        if size > MOST_BYTES:
            break
        words += (*terms, GAP)
    return tuple(words)


def _read_prompt(prompt: JsonValue) -> Iterator[str]:
    told = prompt.get("messages") if isinstance(prompt, dict) else None
    for message in told if isinstance(told, list) else ():
        if isinstance(message, dict) and isinstance(said := message.get("content"), str):
            yield said


def _read_completion(completion: Completion) -> Iterator[str]:
    if completion.text is not None:
        yield completion.text
    for message in completion.messages or ():
        yield from _read_message(message)


def _read_message(message: Message) -> Iterator[str]:
    yield from (said for said in (message.reasoning_content, message.content) if said)


def _read_score(score: str) -> tuple[Sequence[str], str | None]:
    """Its flags and its rationale."""
    if '"rationale"' not in score and '"flags"' not in score:  # most are spared the parsing
        return (), None
    told = decode_json(score)
    flags, rationale = (told.get("flags"), told.get("rationale")) if isinstance(told, dict) else (None, None)
    listed = flags if isinstance(flags, list) else ()
    return [flag for flag in listed if isinstance(flag, str)], rationale if isinstance(rationale, str) else None


def find_indexed(connection: Connection, sequences: Collection[int]) -> set[int]:
    """Those whose words the index holds."""
    if not sequences:
        return set()
    held = select(group_texts.c.sequence).where(group_texts.c.sequence.in_(sequences), group_texts.c.waiting == 0)
    return set(connection.execute(held).scalars())


def load_indexed_words(connection: Connection, sequences: Collection[int]) -> Words:
    """Of those that the index holds: for `forget_words`, once their texts may have changed."""
    indexed = find_indexed(connection, sequences)
    return load_words(connection, indexed) if indexed else {}


def complete_words(connection: Connection, words: Words, indexed: Collection[int]) -> Words:
    """The words of those that are indexed: as they were read beforehand, or now where the index took them in since."""
    missing = [one for one in indexed if one not in words]
    return {one: words[one] for one in indexed if one in words} | (load_words(connection, missing) if missing else {})


def forget_words(connection: Connection, words: Words) -> None:
    """The index holds them no more, until it has read their groups again."""
    if words:
        remove_words(connection, words)
        connection.execute(update(group_texts).where(group_texts.c.sequence.in_(words)).values(waiting=1))
