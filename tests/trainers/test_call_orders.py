"""Trainers of others and the released package's own commands, each in its order of calls."""

from pathlib import Path
from typing import Any

from tests.trainers.installed import running, wait_until, written
from tests.trainers.wire import Group, get, made, post


def wait_for_trainer(url: str, batch_size: int) -> None:
    wait_until(lambda: bool(get(url, "/info")["batch_size"] == batch_size))


def by_score(group: Group) -> list[dict[str, Any]]:
    """Its conversations, best first."""
    pairs = zip(group["messages"], group["scores"], strict=True)
    return sorted(({"messages": messages, "score": score} for messages, score in pairs), key=lambda row: -row["score"])


def test_sft_gen(ours: str, tmp_path: Path, tokenizer: Path) -> None:
    """It resets, registers, and asks. Of every group it keeps the three best."""
    groups = [made(number, 4) for number in range(1, 5)]
    record = tmp_path / "sft.jsonl"
    options = ("--api-url", ours, "--tokenizer", tokenizer, "--group-size", 4, "--tasks-per-step", 2)
    with running(tmp_path, "atropos-sft-gen", record, *options, "--num-seqs-to-save", 12, "--save-messages") as command:
        wait_for_trainer(ours, 8)
        post(ours, *groups)
        command.finish()
    assert written(record) == [row for group in groups for row in by_score(group)[:3]]


def test_dpo_gen(ours: str, tmp_path: Path, tokenizer: Path) -> None:
    """It resets, registers, and asks. Of every group of two it makes a pair, from the tokens."""
    groups = [made(number, 2) for number in range(1, 17)]
    record = tmp_path / "dpo.jsonl"
    options = ("--api-url", ours, "--tokenizer", tokenizer, "--group-size", 2, "--num-seqs-to-save", 16)
    pairing = ("--save-n-pairs-per-group", 1, "--minimum-score-diff-max-min", 0)
    with running(tmp_path, "atropos-dpo-gen", record, *options, *pairing) as command:
        wait_for_trainer(ours, 16)
        post(ours, *groups)
        command.finish()
    pairs = [
        {"prefix": f"\x07\x07{chr(number)}", "pos": "\x01\x00", "neg": "\x00\x00", "score": number + 1 / 16}
        for number in range(1, 17)
    ]
    assert written(record) == pairs


def test_verl_recipe(ours: str, tmp_path: Path) -> None:
    groups = [made(number, 8) for number in range(1, 5)]
    record = tmp_path / "batches.jsonl"
    with running(tmp_path, "verl_order.py", ours, record, 16, 2) as trainer:
        wait_for_trainer(ours, 16)
        post(ours, *groups)
        trainer.finish()
    assert [group for batch in written(record) for group in batch] == groups
