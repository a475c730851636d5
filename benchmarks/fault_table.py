"""The faults that `seeded_faults` puts in: in each a piece of text that its file holds once, and what it becomes."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Fault:
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    """Of the quick tier, to run first."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.new}"


_ROWS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "characters/cards/lorebooks.py",
        "if entry.probability < 1:",
        "if entry.probability > 1:",
        "characters/cards/test_round_trip.py",
    ),
    (
        "characters/loading.py",
        "if len(content) > most:",
        "if len(content) > 2 * most:",
        "characters/test_sheets.py",
    ),
    (
        "characters/lorebooks.py",
        " and not one.entry.exclude_recursion",
        " or one.entry.exclude_recursion",
        "characters/lorebooks/test_activation.py",
    ),
    (
        "characters/scenes.py",
        "(self.player, self.event, self.bystander)) != 1",
        "(self.player, self.event)) != 1",
        "characters/cards/test_reading.py",
    ),
    (
        "evaluation/comparison.py",
        "highest - reward <= _SAME",
        "highest - reward <= 0.3",
        "evaluation/test_scoring_flips.py",
    ),
    ("cli/envs/commands.py", "if not report.passed:", "if report.passed:", "cli/envs/test_envs.py"),
    (
        "cli/process/session.py",
        ".written_count - self.in_hand)",
        ".written_count)",
        "cli/process/test_process.py::test_it_is_done_once_however_often_it_is_started",
    ),
    (
        "features/exports/commands.py",
        "while fetched < count:",
        "while fetched <= count:",
        "cli/test_tasks.py::test_rows_are_tasks_in_the_trainers_columns",
    ),
    (
        "datasets/rows.py",
        "str(alias or info.alias or key)",
        "str(key)",
        "datasets/test_folders.py",
    ),
    ("datasets/rows.py", "enumerate(lines, 1)", "enumerate(lines)", "datasets/test_folders.py"),
    ("domain/budgets.py", "[limit - spent for", "[limit for", "judges/test_budget.py"),
    ("domain/values.py", "(one - other) ** 2 / 2", "(one - other) ** 2", "domain/test_intervals.py"),
    (
        "domain/tasks.py",
        "len(self.logprobs) != len(",
        "len(self.logprobs) > len(",
        "domain/test_tasks_and_scores.py",
    ),
    ("domain/values.py", 'depth + 1, f"{path}.{key}"', 'depth, f"{path}.{key}"', "domain/test_values.py"),
    ("envs/blackjack/environment.py", "if total > 21 or", "if total > 22 or"),
    ("envs/code_exec/exercises.py", "draws.below(most - least + 1)", "draws.below(most - least + 2)"),
    ("envs/community/date_arithmetic/environment.py", "- 1 + way * step.count, 12)", "- 1 + step.count, 12)"),
    ("envs/gsm8k/environment.py", "if value <= 0:", "if value < -9:", "envs/gsm8k/test_word_problems.py"),
    ("envs/mastermind/environment.py", "1 - (game.used - 1) /", "1 - game.used /"),
    ("envs/math/problems.py", "- lower ** (power + 1))", "- lower ** power)", "envs/math/test_math.py"),
    (
        "envs/mcqa/environment.py",
        "_MATERIAL.ordinals[positions[0]]",
        "_MATERIAL.ordinals[positions[0] - 1]",
        "envs/mcqa/test_mcqa.py",
    ),
    (
        "envs/npc_arena/roster.py",
        "if number + 1 < len(self.heard):",
        "if number < len(self.heard):",
        "envs/npc_arena/test_episodes.py",
    ),
    ("envs/regex_match/environment.py", "== len(hidden.matching) and not misfits", "== len(hidden.matching)"),
    ("envs/rlaif/environment.py", "if params.system is not None:", "if params.system is None:"),
    (
        "envs/text_to_sql/join_questions.py",
        '"MAX" if high else "MIN"',
        '"MIN" if high else "MAX"',
        "envs/text_to_sql/test_questions.py::test_the_best_of_each_is_what_its_words_say",
    ),
    ("envs/text_transform/environment.py", "now and written not in steps", "now"),
    (
        "envs/tool_agent/episodes.py",
        "before.turns + 1 == MOST_TURNS",
        "before.turns == MOST_TURNS",
        "envs/tool_agent/test_tool_agent.py::test_calls_alone_end_with_the_last_turn",
    ),
    (
        "envs/tool_calling/environment.py",
        "correct = not reading.fault and matched.correct",
        "correct = matched.correct",
        "envs/tool_calling/test_tool_calling.py::test_a_right_refusal_beside_a_call_that_cannot_be_read_earns_nothing",
    ),
    ("evaluation/report.py", "reward >= threshold", "reward > threshold", "evaluation/test_report.py"),
    ("evaluation/report.py", "paid / 1e6", "paid / 1e3", "evaluation/test_report.py"),
    ("evaluation/report.py", "(reaching + 1) /", "reaching /", "evaluation/test_resampling.py"),
    (
        "http/api/operation_routes.py",
        "if not gateway.catalogue.ready:",
        "if gateway.catalogue.ready:",
        "main/test_readiness.py",
    ),
    (
        "http/compat/openenv/sessions.py",
        "is not None and self.group_size is not None",
        "is None and self.group_size is None",
        "http/compat/openenv/test_openenv.py",
    ),
    ("toolkit/charts.py", "min(1.0, reward)", "max(1.0, reward)", "http/viewer/test_values.py"),
    (
        "http/web/middleware.py",
        'return "" if "@" in host else (urlsplit',
        "return (urlsplit",
        "http/web/test_origins.py",
    ),
    ("http/web/problems.py", "first if count < 2 else", "first if count < 3 else", "http/web/test_problems.py"),
    (
        "inference/policies.py",
        "len(now.said) >= max_turns",
        "len(now.said) > max_turns",
        "inference/test_chat_episodes.py",
    ),
    ("inference/policies.py", "if status >= 500 or", "if status > 500 or", "inference/test_server.py"),
    (
        "judges/offline.py",
        "<= _FEW_WORDS else 2",
        "<= _FEW_WORDS else 1",
        "judges/test_offline.py::test_what_language_a_text_is_in",
    ),
    (
        "judges/offline.py",
        "return value / 2 if",
        "return value if",
        "judges/test_offline.py::test_more_than_six_markers_are_a_list_and_no_voice",
    ),
    (
        "judges/panel.py",
        "max(rewards) - min(rewards) >=",
        "max(rewards) + min(rewards) >=",
        "judges/test_applicability.py",
    ),
    (
        "judges/offline.py",
        "if weight >= _LEAST_WEIGHT:",
        "if weight >= 0:",
        "judges/test_verdict_parsing.py",
    ),
    (
        "judges/configuration.py",
        "return min(value, _MOST_TOKENS)",
        "return max(value, _MOST_TOKENS)",
        "judges/test_judges.py",
    ),
    (
        "judges/verdicts.py",
        "if len(value) < len(pairs):",
        "if pairs and not value:",
        "judges/test_verdict_parsing.py",
    ),
    ("main/application.py", "_choose_size(settings.workers, settings)", "choose_size()", "main/test_application.py"),
    (
        "rag/remote.py",
        "if len(texts) > bounds.passages:",
        "if len(texts) >= bounds.passages:",
        "rag/test_remote_answers.py::test_answers_have_bounds_and_differing_ids",
    ),
    (
        "rag/remote.py",
        "parts.username is not None or",
        "parts.username is not None and",
        "rag/test_remote_answers.py::test_settings_that_cannot_be_right_stop_the_start",
    ),
    (
        "sandbox/supervisor.py",
        "{_require_text(key): _to",
        "{str(key): _to",
        "sandbox/test_programs.py::test_values_are_json_and_nothing_else",
    ),
    (
        "service/group_scoring.py",
        "run is not None and run != lease.run",
        "run is not None and run == lease.run",
        "http/api/test_scoring.py::test_a_lease_counts_for_its_own_run_alone",
    ),
    (
        "features/exports/rows.py",
        "task.tools and trainer not in",
        "task.tools and trainer in",
        "cli/test_tasks.py",
    ),
    ("service/rescoring.py", "if request.judges and", "if not request.judges and", "http/api/test_rescoring.py"),
    (
        "settings/__init__.py",
        "if len(set(ports)) < len(ports):",
        "if len(set(ports)) > len(ports):",
        "main/test_listeners.py",
    ),
    (
        "features/worlds/store_search.py",
        "if one.time > scene.as_of:",
        "if one.time >= scene.as_of:",
        "features/worlds/test_event_corrections.py",
    ),
    (
        "store/judge_cache.py",
        "judge_cache.c.created_at < oldest",
        "judge_cache.c.created_at > oldest",
        "store/test_judge_cache.py::test_only_what_is_young_enough_and_the_newest_are_kept",
    ),
    (
        "store/pending_groups.py",
        'part_members.c.held_until <= bindparam("now")',
        'part_members.c.held_until > bindparam("now")',
        "store/test_parts.py::test_samples_fill_a_group_and_then_the_next",
    ),
    (
        "store/search.py",
        "groups.c.sequence < self.before",
        "groups.c.sequence <= self.before",
        "store/test_views.py::test_a_listing_goes_backwards_in_pages",
    ),
    (
        "telemetry/logs.py",
        "isinstance(value, list | tuple)",
        "isinstance(value, list)",
        "telemetry/test_logs.py",
    ),
    ("toolkit/answers.py", "if len(blocks) > 1:", "if len(blocks) > 2:", "toolkit/answers/test_code.py"),
    (
        "toolkit/replay.py",
        'if not messages or messages[-1].role != "assistant":',
        "if not messages:",
        "toolkit/test_replay.py",
    ),
    (
        "toolkit/tool_calls/calls.py",
        "if calls else float(not expected)",
        "if calls else 1.0",
        "toolkit/tool_calls/test_matching.py",
    ),
)
"""A file of `app`, what it holds, what that becomes, and tests of the quick tier that are known to find it soon."""

FAULTS: Final = tuple(
    Fault(f"app/{file}", old, new, tuple(f"tests/{test}" for test in tests)) for file, old, new, *tests in _ROWS
)
