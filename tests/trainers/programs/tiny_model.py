"""Writes a tiny model of random weights and its tokenizer into a folder, as `from_pretrained` reads them."""

import sys

from tiny import tiny_model, tiny_tokenizer

if __name__ == "__main__":
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(sys.argv[1])
    tiny_model(tokenizer).save_pretrained(sys.argv[1])
