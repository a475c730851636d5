"""The cases of `vendors`, as the table in docs/judge_reference.md tells them."""

import json

from tests.support.judge_cases import GOOD
from tests.support.vendors import (
    LIMIT,
    OPENAI_EXAMPLE,
    WITH_LOGPROBS,
    Refusal,
    Vendor,
    completion,
    has,
    has_format,
    has_role,
)

NO_SYSTEM = "the rules stand in the user's message, without a system message"
NO_TEMPERATURE = "temperature is left out"
NO_LOGPROBS = "logprobs are left out"
OBJECT = "any JSON object is asked for, without the schema"
WORDS = "the form of the answer is asked for in words alone"
RENAMED = "max_completion_tokens is sent in place of max_tokens"
PLAIN = {"expected_scores": False}
"""A judge that asks for no log probabilities."""
LONG_THOUGHT = {
    "prompt_tokens": 1000,
    "completion_tokens": LIMIT,
    "completion_tokens_details": {"reasoning_tokens": LIMIT},
}
RATE_LIMITED = (  # https://github.com/openai/codex/issues/88, its wait shortened
    '{"error":{"message":"Rate limit reached for gpt-4o in organization org-X on tokens per min (TPM): Limit 10000, '
    "Used 6630, Requested 3787. Please try again in 20ms. Visit https://platform.openai.com/account/rate-limits to "
    'learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}'
)
NO_QUOTA = (
    '{"error":{"message":"You exceeded your current quota, please check your plan and billing details. For more '
    'information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",'
    '"type":"insufficient_quota","param":null,"code":"insufficient_quota"}}'
)
FILTERED = (
    '{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI\'s content management '
    'policy. Please modify your prompt and retry.","type":null,"param":"prompt","code":"content_filter","status":400,'
    '"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"violence":{"filtered":true,'
    '"severity":"medium"}}}}}'
)


def refused(field: str, words: str, source: str, code: str = "unsupported_parameter", status: int = 400) -> Refusal:
    """In OpenAI's form, by a server that refuses `field`."""
    error = {"message": words, "type": "invalid_request_error", "param": field, "code": code}
    return Refusal(json.dumps({"error": error}), source, status, has(field))


REASONING = (
    refused(
        "max_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "https://github.com/openai/openai-python/issues/2046",
    ),
    refused(
        "temperature",
        "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
        "https://github.com/gabrii/Cursor-Azure-GPT-5/issues/33",
        "unsupported_value",
    ),
    Refusal(
        '{"error":{"message":"You are not allowed to request logprobs from this model","type":"invalid_request_error",'
        '"param":null,"code":null}}',
        "https://github.com/confident-ai/deepeval/issues/2184",
        403,
        has("logprobs"),
    ),
)

VENDORS = (
    Vendor("OpenAI, chat models", "answers as asked", WITH_LOGPROBS, OPENAI_EXAMPLE),
    Vendor(
        "OpenAI, chat models",
        "a rate limit says in words how long to wait",
        WITH_LOGPROBS,
        OPENAI_EXAMPLE,
        (Refusal(RATE_LIMITED, "https://github.com/openai/codex/issues/88", 429, times=1),),
        calls=(2, 1),
    ),
    Vendor(
        "OpenAI, chat models",
        "no money left",
        WITH_LOGPROBS,
        OPENAI_EXAMPLE,
        (Refusal(NO_QUOTA, "https://github.com/OpenHands/OpenHands/issues/998", 429),),
        error="the judge's server wants to be paid first: You exceeded your current quota",
    ),
    Vendor(
        "OpenAI, reasoning models",
        "refuse max_tokens, temperature and logprobs",
        completion(),
        OPENAI_EXAMPLE,
        REASONING,
        calls=(4, 1),
        changes=(RENAMED, NO_TEMPERATURE, NO_LOGPROBS),
    ),
    Vendor(
        "OpenAI, reasoning models",
        "o3-mini names the model as the field",
        completion(),
        OPENAI_EXAMPLE,
        (
            Refusal(
                '{"error":{"message":"Unsupported parameter: \'temperature\' is not supported with this model.",'
                '"type":"invalid_request_error","param":"model","code":"unsupported_parameter"}}',
                "https://github.com/openai/openai-python/issues/2072",
                when=has("temperature"),
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=(NO_TEMPERATURE,),
    ),
    Vendor(
        "OpenAI, reasoning models",
        "a thought uses up the tokens",
        completion(),
        OPENAI_EXAMPLE,
        (
            Refusal(
                completion('{"role":"assistant","content":""}', choice={"finish_reason": "length"}, usage=LONG_THOUGHT),
                "https://github.com/BerriAI/litellm-docs/issues/559",
                200,
                times=1,
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=(f"an answer may have {4 * LIMIT} tokens in place of {LIMIT}",),
    ),
    Vendor(
        "OpenAI, reasoning models",
        "a thought without end",
        completion('{"role":"assistant","content":""}', choice={"finish_reason": "length"}),
        "https://github.com/BerriAI/litellm-docs/issues/559",
        settings=PLAIN,
        calls=(4, 1),
        changes=(f"an answer may have 32000 tokens in place of {LIMIT}",),
        error="the judge's thought used up the 32000 tokens of its answer",
    ),
    Vendor(
        "OpenAI, reasoning models",
        "o1-mini has no system role",
        completion(),
        OPENAI_EXAMPLE,
        (
            Refusal(
                '{"error":{"message":"Unsupported value: \'messages[0].role\' does not support \'system\' with this '
                'model.","type":"invalid_request_error","param":"messages[0].role","code":"unsupported_value"}}',
                "https://github.com/animalnots/BetterChatGPT-PLUS/issues/90",
                when=has_role("system"),
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=(NO_SYSTEM,),
    ),
    Vendor(
        "Azure OpenAI",
        "an old deployment refuses logprobs",
        completion(
            prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}],
            choice={"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}},
        ),
        "https://cookbook.openai.com/examples/azure/chat",
        (
            refused(
                "logprobs",
                "This model does not support the 'logprobs' parameter.",
                "https://github.com/openai/openai-python/issues/1080",
            ),
        ),
        {"api_version": "2024-10-21"},
        path="/openai/deployments/judge-1",
        calls=(2, 1),
        changes=(NO_LOGPROBS,),
    ),
    Vendor(
        "Azure OpenAI",
        "its filter stops the prompt",
        completion(),
        "https://cookbook.openai.com/examples/azure/chat",
        (Refusal(FILTERED, "https://github.com/compl-ai/compl-ai/issues/20"),),
        PLAIN,
        error="the judge's server refuses: The response was filtered",
    ),
    Vendor(
        "Azure OpenAI",
        "a rate limit of a day",
        completion(),
        "https://cookbook.openai.com/examples/azure/chat",
        (
            Refusal(
                '{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI '
                "API version 2023-05-15 have exceeded token rate limit of your current AIServices S0 pricing tier. "
                'Please retry after 86400 seconds."}}',
                "https://github.com/jasonacox/TinyLLM/issues/17",
                429,
            ),
        ),
        PLAIN,
        error="the judge's server answered 429; gave up after 1 attempts",
    ),
    Vendor(
        "Anthropic's OpenAI route",
        "ignores response_format and logprobs",
        completion(),
        "https://docs.anthropic.com/en/api/openai-sdk",
        text=f"```json\n{GOOD}\n```",
        ignored=("response_format", "logprobs"),
    ),
    Vendor(
        "Anthropic's OpenAI route",
        "a model without temperature",
        completion(),
        "https://docs.anthropic.com/en/api/openai-sdk",
        (
            refused(
                "temperature",
                "temperature is deprecated for this model.",
                "https://github.com/github/copilot-sdk/issues/1557",
                "invalid_request_error",
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=(NO_TEMPERATURE,),
    ),
    Vendor(
        "Gemini's OpenAI route",
        "Gemma there has no system role",
        completion(),
        "https://ai.google.dev/gemini-api/docs/openai",
        (
            Refusal(
                '[{ "error": { "code": 400, "message": "Developer instruction is not enabled for '
                'models/gemma-3-27b-it", "status": "INVALID_ARGUMENT" } } ]',
                "https://github.com/microsoft/vscode/issues/258088",
                when=has_role("system"),
            ),
        ),
        PLAIN,
        path="/v1beta/openai",
        calls=(2, 1),
        changes=(NO_SYSTEM,),
    ),
    Vendor(
        "Gemini's OpenAI route",
        "errors are lists",
        completion(),
        "https://ai.google.dev/gemini-api/docs/openai",
        (
            Refusal(
                '[{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).",'
                '"status":"RESOURCE_EXHAUSTED"}}]',
                "https://github.com/n4ze3m/page-assist/issues/406",
                429,
                times=1,
            ),
        ),
        PLAIN,
        path="/v1beta/openai",
        calls=(2, 1),
    ),
    Vendor(
        "DeepSeek",
        "refuses json_schema",
        completion(),
        "https://api-docs.deepseek.com/api/create-chat-completion",
        (
            Refusal(
                '{"error":{"message":"This response_format type is unavailable now","type":"invalid_request_error",'
                '"param":null,"code":"invalid_request_error"}}',
                "https://github.com/llm-exe/llm-exe/issues/662",
                when=has_format("json_schema"),
            ),
        ),
        PLAIN,
        calls=(2, 1),
        changes=(OBJECT,),
    ),
    Vendor(
        "Mistral",
        "has another name for the seed",
        completion(),
        "https://docs.mistral.ai/api",
        (
            Refusal(
                '{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","seed"],'
                '"msg":"Extra inputs are not permitted","input":7}]},"type":"invalid_request_error","param":null,'
                '"code":null}',
                "https://github.com/editor-code-assistant/eca/issues/231",
                422,
                has("seed"),
            ),
        ),
        {"seed": 7, **PLAIN},
        calls=(2, 1),
        changes=("seed is left out",),
    ),
    Vendor(
        "Mistral",
        "refuses fields that it does not know",
        completion(),
        "https://docs.mistral.ai/api",
        (
            Refusal(
                '{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body",'
                '"max_completion_tokens"],"msg":"Extra inputs are not permitted","input":32000}]},'
                '"type":"invalid_request_error","param":null,"code":null}',
                "https://github.com/editor-code-assistant/eca/issues/231",
                422,
                has("max_completion_tokens"),
            ),
        ),
        {"token_parameter": "max_completion_tokens", **PLAIN},
        calls=(2, 1),
        changes=("max_tokens is sent in place of max_completion_tokens",),
    ),
    Vendor(
        "Groq",
        "a model that wrote no JSON",
        completion(),
        "https://console.groq.com/docs/structured-outputs",
        (
            Refusal(
                '{"error":{"message":"Failed to generate JSON. Please adjust your prompt. See '
                '\'failed_generation\' for more details.","type":"invalid_request_error",'
                '"code":"json_validate_failed","failed_generation":"q7"}}',
                "https://github.com/thepersonalaicompany/amurex-backend/issues/38",
                times=1,
            ),
        ),
        PLAIN,
        calls=(2, 1),
    ),
    Vendor(
        "Together",
        "takes another number for logprobs",
        completion(),
        "https://docs.together.ai/reference/chat-completions-1",
        (
            refused(
                "top_logprobs",
                "5 is greater than the maximum of 1 - 'logprobs'",
                "https://github.com/stanford-crfm/helm/issues/2325",
            ),
        ),
        calls=(2, 1),
        changes=(NO_LOGPROBS,),
    ),
)
"""Services that host models of their own. The others are in `vendor_table_open`."""
