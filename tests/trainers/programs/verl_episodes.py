"""verl's own classes play episodes through examples/verl_agent_loop.py, with a model that says what it is told.

Runs in the loops' Python: a file with the job, a file for what verl was given. As verl does it, all samples of a prompt
play at once in one process, and one that raises is lost alone.
"""

import asyncio
from typing import Any

import verl_agent_loop
from job_files import answer, in_turns
from omegaconf import OmegaConf
from tiny import tiny_tokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

TOKENIZER = tiny_tokenizer()


class Scripted:
    """Stands where verl's client of its model servers stands."""

    def __init__(self, replies: list[str]) -> None:
        self._replies = iter(replies)

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> TokenOutput:
        reply = next(self._replies)
        ids = TOKENIZER.encode(reply.removesuffix("<cut>") + "<|im_end|>" * (not reply.endswith("<cut>")))
        told = {"min_global_steps": len(prompt_ids), "max_global_steps": len(prompt_ids)}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=told)


async def play(job: dict[str, Any], row: dict[str, Any], place: int, replies: list[str]) -> AgentLoopOutput:
    rollout = {"prompt_length": 16384, "response_length": job["length"], "n": len(job["groups"][0]["replies"])}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    loop = verl_agent_loop.GatewayLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=Scripted(replies),
        tokenizer=TOKENIZER,
        processor=None,
        hf_model_type="qwen2",
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        gateway=job["gateway"],
        run=job["run"],
    )
    given = {name: value for name, value in row.items() if name not in {"prompt", "agent_name"}}
    return await loop.run({}, raw_prompt=row["prompt"], uid=row["task_id"], session_id=place, global_steps=7, **given)


def describe(output: AgentLoopOutput | BaseException) -> dict[str, Any]:
    if isinstance(output, BaseException):
        return {"error": str(output)}
    kept = output.as_dict()
    trained = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    return {
        "reward": output.reward_score,
        "last": kept["rm_scores"][-1].item(),
        "logged": output.extra_fields["reward_extra_info"],
        "trained": TOKENIZER.decode(trained),
        "whole": TOKENIZER.decode(output.prompt_ids + output.response_ids),
        "log_probs": [-0.5 if mask else 0.0 for mask in output.response_mask] == output.response_logprobs,
        "tokens": len(output.response_ids),
    }


async def play_all(job: dict[str, Any]) -> dict[str, Any]:
    verl_agent_loop.PATIENCE_SECONDS = job["patience_seconds"]

    async def play_group(group: dict[str, Any]) -> list[dict[str, Any]]:
        playing = [play(job, group["row"], place, said) for place, said in enumerate(group["replies"])]
        return [describe(output) for output in await asyncio.gather(*playing, return_exceptions=True)]

    return {"groups": await in_turns(play_group, job["groups"]), "left": len(verl_agent_loop.GROUPS)}


if __name__ == "__main__":
    answer(play_all)
