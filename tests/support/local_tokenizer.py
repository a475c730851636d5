"""A tokenizer with a token per byte, saved as models bring theirs."""

import json
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


def saved_tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    """The folder with `tokenizer.json` and `tokenizer_config.json` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"chat_template": template, "eos_token": END, "bos_token": None, "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
