"""The faults that `seeded_faults` puts in: in each a piece of text that its file holds once, and what it becomes."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Fault:
    file: str
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.new}"


FAULTS: Final = tuple(
    Fault(f"app/{file}", old, new)
    for file, old, new in (
        ("characters/cards/lorebook_export.py", "if entry.probability < 1:", "if entry.probability > 1:"),
        ("characters/loading.py", "if len(content) > most:", "if len(content) > 2 * most:"),
        (
            "characters/lorebooks/activation.py",
            " and not one.entry.exclude_recursion",
            " or one.entry.exclude_recursion",
        ),
        ("characters/scenes.py", "(self.player, self.event, self.bystander)) != 1", "(self.player, self.event)) != 1"),
        ("cli/envs/commands.py", "if not report.passed:", "if report.passed:"),
        ("cli/process/loop.py", ".written_count - self.in_hand)", ".written_count)"),
        ("cli/prompt_export.py", "while written < count:", "while written <= count:"),
        ("datasets/configured_datasets.py", "{field.alias or name for", "{name for"),
        ("datasets/folder.py", "row {len(rows) + 1}", "row {len(rows)}"),
        ("domain/budgets.py", "[limit - spent for", "[limit for"),
        ("domain/intervals.py", "(one - other) ** 2 / 2", "(one - other) ** 2"),
        ("domain/tasks.py", "len(self.logprobs) != len(", "len(self.logprobs) > len("),
        ("domain/values.py", 'depth + 1, f"{path}.{key}"', 'depth, f"{path}.{key}"'),
        ("envs/blackjack/environment.py", "if total > 21 or", "if total > 22 or"),
        ("envs/code_exec/tasks/shapes.py", "draws.below(most - least + 1)", "draws.below(most - least + 2)"),
        ("envs/community/date_arithmetic/environment.py", "- 1 + way * step.count, 12)", "- 1 + step.count, 12)"),
        ("envs/gsm8k/word_problems.py", "if value <= 0:", "if value < -9:"),
        ("envs/mastermind/environment.py", "1 - (game.used - 1) /", "1 - game.used /"),
        ("envs/math/problems/calculus.py", "- lower ** (power + 1))", "- lower ** power)"),
        ("envs/mcqa/environment.py", "_MATERIAL.ordinals[places[0]]", "_MATERIAL.ordinals[places[0] - 1]"),
        ("envs/npc_arena/scripted_episodes.py", "if number + 1 < len(self.heard):", "if number < len(self.heard):"),
        ("envs/regex_match/environment.py", "== len(hidden.matching) and not misfits", "== len(hidden.matching)"),
        ("envs/rlaif/environment.py", "if wanted.system is not None:", "if wanted.system is None:"),
        ("envs/text_to_sql/tasks/aggregate_questions.py", "(column.dated and not column.nullable)", "column.dated"),
        ("envs/text_transform/environment.py", "now and said not in steps", "now"),
        ("envs/tool_agent/services/tool_episodes.py", "before.turns + 1 == MOST_TURNS", "before.turns == MOST_TURNS"),
        (
            "envs/tool_calling/environment.py",
            "correct = not reading.fault and matched.correct",
            "correct = matched.correct",
        ),
        ("evaluation/by_task.py", "reward >= threshold", "reward > threshold"),
        ("evaluation/report_builder.py", "paid / 1e6", "paid / 1e3"),
        ("evaluation/resampling.py", "(found + 1) /", "found /"),
        ("evaluation/scoring_flips.py", "highest - reward <= _SAME", "highest - reward <= 0.3"),
        ("http/api/health_routes.py", "if not gateway.catalogue.ready:", "if gateway.catalogue.ready:"),
        (
            "http/compat/openenv/resets.py",
            "is not None and self.group_size is not None",
            "is None and self.group_size is None",
        ),
        ("http/viewer/bar_charts.py", "min(1.0, reward)", "max(1.0, reward)"),
        ("http/web/browser_protection.py", '.hostname or "").lower()', '.hostname or "")'),
        ("http/web/problems.py", "first if count < 2 else", "first if count < 3 else"),
        ("inference/chat_episodes.py", "len(now.said) >= max_turns", "len(now.said) > max_turns"),
        ("inference/server.py", "if status >= 500 or", "if status > 500 or"),
        ("judges/languages.py", "<= _FEW_WORDS else 2", "<= _FEW_WORDS else 1"),
        ("judges/lexical.py", "return value / 2 if", "return value if"),
        ("judges/panel.py", "max(rewards) - min(rewards) >=", "max(rewards) + min(rewards) >="),
        ("judges/claims.py", "return weight >= _LEAST_WEIGHT and sought", "return weight >= 0 and sought"),
        ("judges/token_usage.py", "return min(value, _MOST_TOKENS)", "return max(value, _MOST_TOKENS)"),
        ("judges/json_repair.py", "if len(found) < len(pairs):", "if pairs and not found:"),
        ("main/application.py", "settings.workers or choose_size()", "choose_size()"),
        ("rag/remote/contract.py", "if len(texts) > bounds.passages:", "if len(texts) >= bounds.passages:"),
        ("rag/remote/retriever.py", "parts.username is not None or", "parts.username is not None and"),
        ("sandbox/runner.py", "isinstance(value, float) and math.isfinite(value)", "isinstance(value, float)"),
        ("service/score_validation.py", "run is not None and run != lease.run", "run is not None and run == lease.run"),
        ("service/exports/prompt_rows.py", "task.tools and trainer not in", "task.tools and trainer in"),
        ("service/rescoring.py", "if request.judges and", "if not request.judges and"),
        ("settings/__init__.py", "if len(set(ports)) < len(ports):", "if len(set(ports)) > len(ports):"),
        ("store/event_search.py", "if one.time > scene.as_of:", "if one.time >= scene.as_of:"),
        ("store/judge_cache.py", "judge_cache.c.created_at < oldest", "judge_cache.c.created_at > oldest"),
        ("store/pending_slots.py", "part_members.c.held_until <= now", "part_members.c.held_until > now"),
        ("store/group_views.py", "groups.c.sequence < where.before", "groups.c.sequence <= where.before"),
        ("telemetry/redaction.py", "isinstance(value, list | tuple)", "isinstance(value, list)"),
        ("toolkit/answers/code.py", "if len(blocks) > 1:", "if len(blocks) > 2:"),
        ("toolkit/replay.py", 'if not messages or messages[-1].role != "assistant":', "if not messages:"),
        ("toolkit/tool_calls/matching.py", "if calls else float(not expected)", "if calls else 1.0"),
    )
)
