"""TRL's GRPOTrainer with the environment of examples/trl_environment.py, and a model that guesses codes.

Runs in the tuners' Python: URL, run. Each token that the model may say is a call of the tool, or the end."""

import itertools
import sys
from functools import partial

from tiny import tiny_model, tiny_tokenizer
from trl import GRPOConfig, GRPOTrainer
from trl_environment import ENVIRONMENT, Mastermind, game_reward
from trl_grpo import connect, prompts

CALLS = [
    f'<tool_call>\n{{"name": "guess", "arguments": {{"code": "{"".join(code)}"}}}}\n</tool_call>'
    for code in itertools.product("ABCDE", repeat=3)
]


def main(url: str, run: str) -> None:
    gateway = connect(url)
    tokenizer = tiny_tokenizer(CALLS)
    model = tiny_model(tokenizer)
    calls = tokenizer.convert_tokens_to_ids(CALLS)
    others = [token for token in range(len(tokenizer)) if token not in {*calls, tokenizer.eos_token_id}]
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *calls]
    GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=game_reward(gateway, run, "tiny"),
        environment_factory=partial(Mastermind, gateway),
        train_dataset=prompts(gateway, ENVIRONMENT, run, count=2, params={"level": "easy", "guesses": 4}),
        args=GRPOConfig(
            output_dir="out",
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=1500,
            max_tool_calling_iterations=4,
            generation_kwargs={"suppress_tokens": others},
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
        ),
    ).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
