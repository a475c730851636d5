"""Tasks with a user who answers, and a tool, for verifiers."""

import verifiers.v1 as vf


class GuessData(vf.TaskData):
    secret: int


class HintToolset(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "hints"

    @vf.tool
    def parity(self, number: int) -> str:
        """Tell whether a number is even or odd."""
        if number < 0:
            raise ValueError("it is below 0")
        return "odd" if number % 2 else "even"


class GuessTask(vf.Task[GuessData]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [HintToolset(vf.ToolsetConfig())]

    @vf.reward(weight=1.0)
    async def found(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.secret))

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class GuessEnv(vf.SingleAgentEnv):
    async def run(self, task: GuessTask, agents: vf.Agents) -> None:
        said = "Guess my number."
        async with agents.agent.interaction(task) as conversation:
            while not (segment := await conversation.turn(said)).terminated:
                if segment.last_reply == str(task.data.secret):
                    return
                if segment.last_reply == "leave":
                    raise ValueError("the user left")
                said = "No. Guess again."


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    def load(self) -> list[GuessTask]:
        return [GuessTask(GuessData(secret=number), self.config.task) for number in range(4)]


__all__ = ["GuessEnv", "GuessTaskset"]


if __name__ == "__main__":
    HintToolset.run()
