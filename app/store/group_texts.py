"""The words of groups: of prompts, completions and rationales, and how the database's own index holds them.

The index is FTS5 on SQLite, and tsvector with GIN on PostgreSQL. Neither splits texts or reads what people type: both
are given terms, each a run of letters, marks and digits, so that the same text is found on both. Before a group's words
stand tags, of its environment, run and model, and of each flag: a rare flag is so found at once.

The index has no texts, so SQLite must be told again what it forgets, word for word. The words of a group therefore
depend on nothing but what is stored, and whoever changes or removes a group makes them again before.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from pydantic import JsonValue
from sqlalchemy import Connection, select, text, update

from app.domain.groups import TextQuery, share_words
from app.domain.tasks import Completion, Message
from app.store.group_rows import decode_flags, decode_name
from app.store.statements import decode_json, unpack_completion, unpack_text
from app.store.tables import group_texts, groups, prompts, rollouts, tasks

# The index of words.

Words = Mapping[int, Sequence[str]]
"""By the sequences of groups, in the order in which they stand."""

_GAP: Final = "\ue000"
"""Between texts: no phrase goes over it, since nothing that people write is made of it."""
_TAG: Final = "\ue001"
_LAST_POSITION: Final = 16_383
"""Of a tsvector."""

_CREATE: Final = {
    "sqlite": (
        "CREATE VIRTUAL TABLE IF NOT EXISTS group_words USING fts5(words, content='', columnsize=0,"
        " tokenize=\"unicode61 remove_diacritics 0 categories 'L* M* N* Co'\")",
    ),
    "postgresql": (
        "CREATE TABLE IF NOT EXISTS group_words (sequence BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
        "CREATE INDEX IF NOT EXISTS ix_group_words ON group_words USING gin (words) WITH (fastupdate = off)",
    ),
}


def tag(field: str, value: str) -> str:
    """The word for a value that is no text. A digest, since an index would fold its letters and split it at signs."""
    digest = hashlib.blake2b(f"{field}\0{value}".encode("utf-8", "surrogatepass"), digest_size=8)
    return _TAG + digest.hexdigest()


def create_words(connection: Connection) -> None:
    for statement in _CREATE[connection.dialect.name]:
        connection.exec_driver_sql(statement)


def drop_words(connection: Connection) -> None:
    connection.execute(text("DROP TABLE IF EXISTS group_words"))


def add_words(connection: Connection, words: Words) -> None:
    """Of groups that the index does not have."""
    if not words:
        return
    if connection.dialect.name == "postgresql":
        into = text("INSERT INTO group_words (sequence, words) VALUES (:sequence, CAST(:words AS tsvector))")
        rows = [{"sequence": one, "words": _write_vector(terms)} for one, terms in words.items()]
    else:
        into = text("INSERT INTO group_words (rowid, words) VALUES (:sequence, :words)")
        rows = [{"sequence": one, "words": " ".join(terms)} for one, terms in words.items()]
    connection.execute(into, rows)


def remove_words(connection: Connection, words: Words) -> None:
    """Of groups that the index has: exactly the words that were added."""
    if not words:
        return
    if connection.dialect.name == "postgresql":
        gone = text("DELETE FROM group_words WHERE sequence = :sequence")
    else:
        gone = text("INSERT INTO group_words (group_words, rowid, words) VALUES ('delete', :sequence, :words)")
    connection.execute(gone, [{"sequence": one, "words": " ".join(terms)} for one, terms in words.items()])


def _write_vector(terms: Sequence[str]) -> str:
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for position, term in enumerate(terms, start=1):
        if term != _GAP:
            positions[term].append(min(position, _LAST_POSITION))
    return " ".join(f"{_quote(term)}:{','.join(map(str, at))}" for term, at in positions.items())


def write_query(query: TextQuery, *, postgres: bool) -> str:
    """In the syntax of the database. Terms have no signs in them; they are quoted nevertheless."""
    if postgres:
        return " & ".join(f"({' <-> '.join(map(_quote, phrase))})" for phrase in query.phrases)
    return " AND ".join('"{}"'.format(" ".join(phrase).replace('"', '""')) for phrase in query.phrases)


def _quote(term: str) -> str:
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


# Which words a group has.

_MOST_WORDS: Final = 16_000
"""Of a group. A tsvector knows the places of as many."""
_MOST_TAGS: Final = 100
_MOST_BYTES: Final = 400_000
"""A tsvector takes a megabyte at most."""


def load_words(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[str, ...]]:
    """What cannot be columns has no words."""
    texts: defaultdict[int, list[str]] = defaultdict(list)
    tags: defaultdict[int, list[str]] = defaultdict(list)
    of_group = (groups.c[name] for name in ("sequence", "environment", "run", "model", "flags"))
    prompted = (
        select(*of_group, prompts.c.body, prompts.c.packed)
        .join_from(groups, tasks, tasks.c.task_id == groups.c.task_id)
        .join(prompts, prompts.c.digest == tasks.c.prompt_digest)
        .where(groups.c.sequence.in_(sequences))
    )
    for row in connection.execute(prompted):
        with suppress(ValueError):
            tags[row.sequence] += _tag_group(row.environment, row.run, decode_name(row.model), decode_flags(row.flags))
            texts[row.sequence] += _read_prompt(decode_json(unpack_text(row.body, row.packed)))
    columns = (rollouts.c[name] for name in ("group_sequence", "completion", "packed", "score"))
    members = select(*columns).where(rollouts.c.group_sequence.in_(sequences))
    for row in connection.execute(members.order_by(rollouts.c.group_sequence, rollouts.c.position)):
        with suppress(ValueError):
            flags, rationale = _read_score(row.score)
            tags[row.group_sequence] += (tag("flag", flag) for flag in flags)
            texts[row.group_sequence] += _read_completion(unpack_completion(row.completion, row.packed))
            texts[row.group_sequence] += (rationale,) if rationale else ()
    return {one: (*_choose_tags(tags[one]), *_choose_words(texts[one])) for one in sequences}


def _tag_group(environment: str, run: str | None, model: str | None, flags: Sequence[str]) -> Iterator[str]:
    yield tag("environment", environment)
    if run is not None:
        yield tag("run", run)
    if model is not None:
        yield tag("model", model)
    yield from (tag("flag", flag) for flag in flags)


def _choose_tags(tags: Sequence[str]) -> tuple[str, ...]:
    return (*[*dict.fromkeys(tags)][:_MOST_TAGS], _GAP)


def _choose_words(texts: Collection[str]) -> tuple[str, ...]:
    words: list[str] = []
    size = 0
    for terms in share_words(dict.fromkeys(texts), _MOST_WORDS - len(texts)):
        size += len("".join(terms).encode())
        if size > _MOST_BYTES:
            break
        words += (*terms, _GAP)
    return tuple(words)


def _read_prompt(prompt: JsonValue) -> Iterator[str]:
    messages = prompt.get("messages") if isinstance(prompt, dict) else None
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and isinstance(content := message.get("content"), str):
            yield content


def _read_completion(completion: Completion) -> Iterator[str]:
    if completion.text is not None:
        yield completion.text
    for message in completion.messages or ():
        yield from _read_message(message)


def _read_message(message: Message) -> Iterator[str]:
    yield from (text for text in (message.reasoning_content, message.content) if text)


def _read_score(score: str) -> tuple[Sequence[str], str | None]:
    """Its flags and its rationale."""
    if '"rationale"' not in score and '"flags"' not in score:  # most are spared the parsing
        return (), None
    parsed = decode_json(score)
    flags, rationale = (parsed.get("flags"), parsed.get("rationale")) if isinstance(parsed, dict) else (None, None)
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
