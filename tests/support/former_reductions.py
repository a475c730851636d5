"""Groups as they were left when texts and thoughts were parts that could go: digests in their place."""

import hashlib
from datetime import UTC, datetime

from sqlalchemy import func, select, update

from app.domain.keeping import PartDigest, ReducedCompletion, count_written_characters, digest_text
from app.domain.tasks import Completion
from app.domain.values import canonical_json
from app.store.group_rows import build_mask
from app.store.group_texts import forget_words, load_indexed_words
from app.store.statements import decode, encode, pack_completion, unpack_completion
from app.store.tables import groups, rollouts
from tests.support.databases import connected

AT = datetime(2026, 1, 1, tzinfo=UTC)


def drop_texts(url: str) -> int:
    """Of every group; says how many there are."""
    with connected(url) as connection:
        sequences = connection.execute(select(groups.c.sequence)).scalars().all()
        forget_words(connection, load_indexed_words(connection, sequences))
        columns = (rollouts.c[name] for name in ("group_sequence", "position", "completion", "packed", "reduced"))
        for sequence, position, body, packed, stored in connection.execute(select(*columns)).all():
            before = None if stored is None else decode(ReducedCompletion, stored)
            completion, mark = _drop_text(unpack_completion(body, packed), before)
            new = pack_completion(completion)
            here = (rollouts.c.group_sequence == sequence, rollouts.c.position == position)
            changed = {"completion": new.text, "packed": new.packed, "reduced": encode(mark)}
            connection.execute(update(rollouts).where(*here).values(changed))
        mask = func.coalesce(groups.c.reduced, 0).bitwise_or(build_mask(("text", "thought")))
        connection.execute(update(groups).values(reduced=mask))
    return len(sequences)


def _drop_text(completion: Completion, before: ReducedCompletion | None) -> tuple[Completion, ReducedCompletion]:
    messages = completion.messages or ()
    thoughts = [one.reasoning_content for one in messages if one.reasoning_content is not None]
    said = canonical_json([one.model_dump(mode="json", exclude={"reasoning_content"}) for one in messages])
    digest = PartDigest(sha256=_hash(said), characters=count_written_characters(messages), count=len(messages))
    thought = PartDigest(
        sha256=_hash(canonical_json(thoughts)), characters=sum(map(len, thoughts)), count=len(thoughts)
    )
    text = digest if completion.text is None else digest_text(completion.text)
    marks = {"text": text, "identity": completion.identity_digest, "by": "operator", "at": AT}
    mark = ReducedCompletion.model_validate(dict(before or {}) | marks | ({"thought": thought} if thoughts else {}))
    line = f"[this text is not kept: {text.characters} characters, sha256 {text.sha256}]"
    return completion.model_copy(update={"messages": None, "text": line}), mark


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
