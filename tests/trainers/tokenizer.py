"""A tokenizer of bytes, as a folder that transformers loads without a network."""

import json
from pathlib import Path

TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}{{ 'assistant: ' }}"


def write_tokenizer(folder: Path) -> Path:
    """Token n is byte n."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    signs = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {signs[byte]: byte for byte in range(256)}, "merges": []}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": model,
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    folder.mkdir(parents=True)
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder
