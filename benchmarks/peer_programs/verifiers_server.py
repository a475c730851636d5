"""verifiers' own `EnvServer` with a task set that grades an answer as `gsm8k` does: the last number after `####`.

Runs in verifiers' Python: `verifiers_server.py PORT`. Its server speaks ZeroMQ and asks the policy itself, so this
program is what stands around it: `POST /run` is a rollout through its `EnvClient`, `POST /v1/chat/completions` is a
policy that says at once what it hears, and `GET /` tells the server's process. The harness asks the policy in the
server's process, through its interception server: the chat program that it ships is a process for each rollout.
"""

import multiprocessing
import sys
from typing import Any

import httpx
import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.serve import EnvClient, EnvServer

NAME = "verifiers_server"
__all__ = ["DirectHarness", "GradedAnswers"]


class AnswerData(vf.TaskData):  # type: ignore[misc]
    wanted: str


class Answer(vf.Task[AnswerData]):  # type: ignore[misc]
    @vf.reward(weight=1.0)  # type: ignore[untyped-decorator]
    async def right(self, trace: Any) -> float:
        return float(trace.last_reply.rpartition("####")[2].strip() == self.data.wanted)


class GradedAnswers(vf.Taskset[Answer, vf.TasksetConfig]):  # type: ignore[misc]
    def load(self) -> list[Answer]:
        return []


class DirectHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    EXECUTES_CODE = NEEDS_CONTAINER = False
    policy: httpx.AsyncClient | None = None

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> ProgramResult:
        if DirectHarness.policy is None:
            DirectHarness.policy = httpx.AsyncClient(timeout=60)
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        key = {"Authorization": f"Bearer {secret}"}
        answer = await DirectHarness.policy.post(f"{endpoint}/chat/completions", json=body, headers=key)
        return ProgramResult(exit_code=int(answer.is_error), stdout="", stderr=answer.text)


def serve(addresses: Any) -> None:
    agent = {"harness": {"id": NAME}, "runtime": {"type": "subprocess"}}
    config = vf.SingleAgentEnvConfig(taskset={"id": NAME}, agent=agent)
    EnvServer.run_server(addresses, config=config, address="tcp://127.0.0.1:0")


def build_app(address: str, pid: int, port: int) -> web.Application:
    policy = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="NONE")
    client = EnvClient(address)

    async def tell_process(_: web.Request) -> web.Response:
        return web.json_response({"pid": pid, "ready": await client.health()})

    async def run(request: web.Request) -> web.Response:
        episode = await client.run(policy, "policy", vf.SamplingConfig(), await request.json())
        (trace,) = episode.traces
        if not episode.ok:
            return web.json_response({"errors": [str(error) for error in [*episode.errors, *trace.errors]]}, status=500)
        return web.json_response({"reward": trace.reward})

    async def say(request: web.Request) -> web.Response:
        said = (await request.json())["messages"][-1]["content"]
        message = {"role": "assistant", "content": said}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        about = {"id": "one", "object": "chat.completion", "created": 0, "model": "policy"}
        return web.json_response({**about, "choices": [choice], "usage": usage})

    app = web.Application()
    app.add_routes([web.get("/", tell_process), web.post("/run", run), web.post("/v1/chat/completions", say)])
    return app


async def build_around(address: str, pid: int, port: int) -> web.Application:
    return build_app(address, pid, port)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    addresses: Any = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(addresses,), daemon=True)
    server.start()
    port = int(sys.argv[1])
    web.run_app(build_around(addresses.get(), server.pid or 0, port), host="127.0.0.1", port=port, print=None)
