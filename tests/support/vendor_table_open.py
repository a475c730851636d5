"""The cases of `vendors`: gateways, and servers that people run themselves."""

import json

from tests.support.judge_cases import GOOD
from tests.support.vendor_table import NO_SYSTEM, PLAIN
from tests.support.vendors import (
    ANSWER,
    LIMIT,
    LOGPROBS,
    WITH_LOGPROBS,
    Refusal,
    Vendor,
    completion,
    has,
    has_format,
    has_role,
    lacks_stream,
)

OPENROUTER = "https://openrouter.ai/docs/use-cases/usage-accounting"
OPENROUTER_USAGE = {
    "prompt_tokens": 194,
    "completion_tokens": 2,
    "total_tokens": 196,
    "cost": 0.95,
    "cost_details": {"upstream_inference_cost": 19},
    "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 100, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
UNLIMITED = {"prompt_tokens": 1000, "completion_tokens": 4 * LIMIT, "total_tokens": 1000 + 4 * LIMIT}
RELAYED = json.dumps(
    {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {
                "raw": '{"error":{"message":"Unsupported parameter: \'max_tokens\' is not supported with this model. '
                'Use \'max_completion_tokens\' instead.","param":"max_tokens"}}',
                "provider_name": "OpenAI",
            },
        },
        "user_id": "org_1",
    }
)
THOUGHT = f"<think>\nOkay, q7 is best.\n</think>\n\n{GOOD}"
VLLM_THOUGHTS = "https://docs.vllm.ai/en/v0.9.1/features/reasoning_outputs.html"

OPEN_VENDORS = (
    Vendor(
        "OpenRouter",
        "200 with a rate limit inside",
        completion(usage=OPENROUTER_USAGE),
        OPENROUTER,
        (
            Refusal(
                '{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"z-ai/glm-5.3-flash is '
                "temporarily rate-limited upstream. Please retry shortly, or add your own key to accumulate your rate "
                'limits: ...","provider_name":"BaseTen","limit_source":"upstream_provider_shared_pool"}}}',
                "https://github.com/open-webui/computer/issues/293",
                200,
                times=1,
            ),
        ),
        PLAIN,
        calls=(2, 1),
    ),
    Vendor(
        "OpenRouter",
        "200 with a refusal of the provider inside",
        completion(usage=OPENROUTER_USAGE),
        OPENROUTER,
        (
            Refusal(
                RELAYED,
                "https://github.com/reVrost/go-openrouter/issues/21",
                200,
                has("max_tokens"),
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=("max_completion_tokens is sent in place of max_tokens",),
    ),
    Vendor(
        "OpenRouter",
        "a choice that ended in an error",
        completion(usage=OPENROUTER_USAGE),
        OPENROUTER,
        (
            Refusal(
                '{"id":"gen-mockerror","object":"chat.completion","created":1700000000,"model":"google/gemini-3.1",'
                '"choices":[{"index":0,"message":{"role":"assistant","content":"{\\"events\\": [{\\"title\\": '
                '\\"partial"},"finish_reason":"error"}],"usage":{"prompt_tokens":null,"completion_tokens":null,"total_tokens":0}}',
                "https://github.com/maximhq/bifrost/issues/5425",
                200,
                times=1,
            ),
        ),
        PLAIN,
        calls=(2, 1),
    ),
    Vendor(
        "OpenRouter",
        "providers that drop what they do not know",
        completion(usage=OPENROUTER_USAGE),
        OPENROUTER,
        text=f"Here is my verdict:\n{GOOD}",
        ignored=("response_format", "logprobs"),
    ),
    Vendor(
        "vLLM with a reasoning parser",
        "takes the answer for a thought",
        completion(f'{{"role":"assistant","content":null,"refusal":null,"reasoning_content":{ANSWER}}}'),
        "https://github.com/vllm-project/vllm/issues/17349",
        settings=PLAIN,
    ),
    Vendor(
        "vLLM with a reasoning parser",
        "its newer name of the field",
        completion(f'{{"role":"assistant","content":null,"reasoning":{ANSWER},"tool_calls":[]}}'),
        "https://github.com/vllm-project/vllm-ascend/issues/8042",
        settings=PLAIN,
    ),
    Vendor(
        "vLLM with a reasoning parser",
        "a thought uses up the tokens",
        completion(f'{{"role":"assistant","content":{ANSWER},"reasoning_content":"Okay, q7 is best."}}'),
        VLLM_THOUGHTS,
        (
            Refusal(
                completion(
                    '{"role":"assistant","content":null,"reasoning_content":"Okay, so"}',
                    choice={"finish_reason": "length", "stop_reason": None},
                ),
                VLLM_THOUGHTS,
                200,
                times=2,
            ),
        ),
        PLAIN,
        calls=(3, 1),
        changes=(f"an answer may have {16 * LIMIT} tokens in place of {LIMIT}",),
    ),
    Vendor(
        "vLLM without a reasoning parser",
        "leaves the thought in the answer",
        completion(),
        "https://github.com/vllm-project/vllm/issues/21130",
        settings=PLAIN,
        text=THOUGHT,
    ),
    Vendor(
        "vLLM without a reasoning parser",
        "a thought without an end",
        completion(),
        "https://github.com/vllm-project/vllm/issues/21130",
        (
            Refusal(
                completion('{"role":"assistant","content":"<think>Okay, so"}', choice={"finish_reason": "length"}),
                "https://github.com/vllm-project/vllm/issues/21130",
                200,
                times=1,
            ),
        ),
        PLAIN,
        text=THOUGHT,
        calls=(2, 1),
        changes=(f"an answer may have {4 * LIMIT} tokens in place of {LIMIT}",),
    ),
    Vendor(
        "vLLM without a reasoning parser",
        "a template without a system role",
        completion(),
        "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        (
            Refusal(
                '{"object":"error","message":"System role not supported","type":"BadRequestError","param":null,'
                '"code":400}',
                "https://github.com/vllm-project/vllm/issues/2964",
                when=has_role("system"),
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=(NO_SYSTEM,),
    ),
    Vendor(
        "vLLM without a reasoning parser",
        "fewer alternatives than asked for",
        WITH_LOGPROBS,
        "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        (
            Refusal(
                '{"error":{"message":"Requested sample logprobs of 8, which is greater than max allowed: 5",'
                '"type":"BadRequestError","param":"logprobs","code":400}}',
                "vllm 0.33.0, vllm/sampling_params.py",
                when=lambda body: body.get("top_logprobs") == 8,
            ),
        ),
        calls=(2, 1),
        changes=("top_logprobs is 5",),
    ),
    Vendor(
        "SGLang",
        "counts thoughts in a field of its own",
        completion(
            f'{{"role":"assistant","content":{ANSWER},"reasoning_content":"Okay.","tool_calls":null}}',
            usage={"prompt_tokens": 1000, "completion_tokens": 2000, "reasoning_tokens": 1900},
            metadata={"weight_version": "default"},
        ),
        "sglang 0.5.23, sglang/srt/entrypoints/openai/protocol.py",
        settings=PLAIN,
    ),
    Vendor(
        "SGLang",
        "an old one fails of the system role with 500",
        completion(),
        "sglang 0.5.23, sglang/srt/entrypoints/openai/protocol.py",
        (
            Refusal(
                '{"object":"error","message":"System role not supported","type":"InternalServerError","param":null,'
                '"code":500}',
                "https://github.com/sgl-project/sglang/issues/892",
                500,
                has_role("system"),
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=(NO_SYSTEM,),
    ),
    Vendor(
        "llama.cpp",
        "still loads its model",
        completion(
            f'{{"role":"assistant","reasoning_content":"Okay.","content":{ANSWER}}}',
            timings={"cache_n": 7, "prompt_n": 10, "prompt_ms": 251.51, "predicted_n": 28},
            choice={"logprobs": LOGPROBS},
        ),
        "https://github.com/openai-php/client/issues/780",
        (
            Refusal(
                '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
                "https://github.com/mostlygeek/llama-swap/issues/146",
                503,
                times=2,
            ),
        ),
        calls=(3, 1),
    ),
    Vendor(
        "llama.cpp",
        "a prompt that is too long",
        completion(),
        "https://github.com/openai-php/client/issues/780",
        (
            Refusal(
                '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the '
                'context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":14429,'
                '"n_ctx":8192}}',
                "https://github.com/oobabooga/textgen/issues/7257",
            ),
        ),
        PLAIN,
        error="the judge's server answered 400: the request exceeds the available context size",
    ),
    Vendor(
        "Ollama",
        "does not know max_completion_tokens",
        completion(),
        "https://github.com/ollama/ollama/blob/main/openai/openai.go",
        (
            Refusal(
                completion(f'{{"role":"assistant","content":{ANSWER}}}', usage=UNLIMITED).replace(
                    ANSWER, json.dumps(GOOD)
                ),
                "https://github.com/ollama/ollama/blob/main/openai/openai.go",
                200,
                has("max_completion_tokens"),
            ),
        ),
        settings={"token_parameter": "max_completion_tokens", **PLAIN},
        changes=("max_tokens is sent in place of max_completion_tokens",),
        ignored=("max_completion_tokens",),
    ),
    Vendor(
        "Ollama",
        "a thought in its own field, no logprobs",
        completion(f'{{"role":"assistant","content":{ANSWER},"reasoning":"Okay."}}', system_fingerprint="fp_ollama"),
        "https://github.com/ollama/ollama/issues/13638",
        ignored=("logprobs",),
    ),
    Vendor(
        "LM Studio",
        "refuses json_object",
        completion(stats={}),
        "https://lmstudio.ai/docs/developer/openai-compat/structured-output",
        (
            Refusal(
                "{\"error\":\"'response_format.type' must be 'json_schema' or 'text'\"}",
                "https://github.com/t59688/arboris-novel/issues/23",
                when=has_format("json_object"),
            ),
        ),
        {"json_mode": "object", **PLAIN},
        calls=(2, 1),
        changes=("the schema of the answer is sent",),
    ),
    Vendor(
        "transformers serve",
        "takes and ignores response_format and logprobs",
        completion(),
        "transformers 5.23.0, transformers/cli/serving/chat_completion.py",
        text=f"```json\n{GOOD}\n```",
        ignored=("response_format", "logprobs"),
    ),
    Vendor(
        "A gateway that only streams",
        "without being asked",
        completion(),
        "https://github.com/modelscope/evalscope/pull/663",
        settings=PLAIN,
        streams=True,
    ),
    Vendor(
        "A gateway that only streams",
        "Alibaba's for QwQ",
        completion(),
        "https://openrouter.ai/docs/api_reference/streaming",
        (
            Refusal(
                '{"error":{"code":"invalid_parameter_error","param":null,"message":"This model only support stream '
                'mode, please enable the stream parameter to access the model. ","type":"invalid_request_error"},'
                '"id":"chatcmpl-7ed7","request_id":"7ed7"}',
                "https://github.com/FoundationAgents/OpenManus/issues/330",
                when=lacks_stream,
            ),
            Refusal(
                '{"error":{"message":"Unknown parameter: \'stream_options\'.","type":"invalid_request_error",'
                '"param":"stream_options","code":"unknown_parameter"}}',
                "https://github.com/feiskyer/chatgpt-copilot/issues/173",
                when=has("stream_options"),
            ),
        ),
        PLAIN,
        streams=True,
        calls=(3, 1),
        changes=("answers are streamed",),
    ),
)
