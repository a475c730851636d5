"""A judge's server that takes its time: run as a program, it prints its port and answers until it is ended."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from tests.support.shown_prompts import find_wanted_replies, read_prompt

SECONDS = 1.0


async def serve() -> None:
    server = await asyncio.start_server(_talk, "127.0.0.1", 0, limit=2**20, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            began = asyncio.get_running_loop().time()
            answer = answer_chat(json.loads(body))
            await asyncio.sleep(SECONDS - (asyncio.get_running_loop().time() - began))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(f"content-length: {len(answer)}\r\n\r\n".encode() + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def answer_chat(body: Mapping[str, Any]) -> bytes:
    """Scores by what the candidates are, not by where they stand: both orders agree."""
    rules, question = (said["content"] for said in body["messages"][:2])
    if wanted := find_wanted_replies(rules):
        return _build_answer(question, {kind: f"The {kind} bell rang." for kind in wanted})
    shown = read_prompt(question)
    criteria, texts = [*shown.criteria], shown.texts
    verdicts = [
        {
            "candidate": name,
            "evidence": [text[:40]],
            "claims": [],
            "defects": [],
            "scores": dict.fromkeys(criteria, sum(map(ord, text)) % 5),
            "note": "It answers the question in the voice that the sheet asks for.",
        }
        for name, text in texts.items()
    ]
    ranking = [[name] for name in sorted(texts, key=lambda name: texts[name])]
    return _build_answer(question, {"verdicts": verdicts, "ranking": ranking})


def _build_answer(question: str, answer: Mapping[str, Any]) -> bytes:
    said = json.dumps(answer)
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    usage = {"prompt_tokens": len(question) // 4, "completion_tokens": len(said) // 4}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()


if __name__ == "__main__":
    asyncio.run(serve())
