"""A tokenizer with a token per byte, saved as models bring theirs; ids are those of `policy_server`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END: Final = "<|end|>"
TEMPLATE: Final = """
{%- for message in messages -%}
<{{ message.role }}>{{ message.content }}
{%- for call in message.tool_calls -%}
<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>
{%- endfor -%}
{{ eos_token if message.role == 'assistant' else '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}<assistant>{%- endif -%}
"""
"""As `policy_server.prompt_ids` has it, for texts."""


def saved_tokenizer(folder: Path, template: str = TEMPLATE, merges: Sequence[tuple[str, str]] = ()) -> Path:
    """The folder with `tokenizer.json` and `tokenizer_config.json` in it. Merged tokens are numbered from 257."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [*_letters(), END, *(one + other for one, other in merges)]
    tokenizer = Tokenizer(models.BPE({word: place for place, word in enumerate(words)}, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"chat_template": template, "eos_token": END, "bos_token": None, "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _letters() -> list[str]:
    """The letter that stands for each byte: its own where it can be seen, else one beyond Latin-1."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in seen]
    return [chr(byte if byte in seen else 256 + hidden.index(byte)) for byte in range(256)]
