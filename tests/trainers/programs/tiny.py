"""A language model of random weights and a tokenizer of bytes that writes chats with tools, made without a network."""

from collections.abc import Sequence

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = """
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] or '' }}
{%- for call in m['tool_calls'] or [] %}<tool_call>
{"name": "{{ call['function']['name'] }}", "arguments": {% if call['function']['arguments'] is string %}
{{- call['function']['arguments'] }}{% else %}{{ call['function']['arguments'] | tojson }}{% endif %}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
RESPONSES = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def tiny_tokenizer(words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Each byte is a token, and each of `words`."""
    signs = sorted(ByteLevel.alphabet())
    core = Tokenizer(BPE({sign: number for number, sign in enumerate(signs)}, []))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = Decoder()
    core.add_special_tokens(["<|pad|>", "<|im_start|>", "<|im_end|>"])
    core.add_tokens([AddedToken(word, normalized=False) for word in words])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|pad|>", eos_token="<|im_end|>", padding_side="left"
    )
    made.chat_template = TEMPLATE
    made.response_template = RESPONSES
    return made


def tiny_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> LlamaForCausalLM:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=8192,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
