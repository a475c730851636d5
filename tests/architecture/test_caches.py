"""Each cache of a function has a bound in bytes: `remember` states it, and others keep little."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.domain.values import MEBIBYTE

ROOT: Final = Path(__file__).parents[2]

BOUNDED: Final = {
    "a letter or a number": """
        characters/lorebooks._is_word_letter domain/worlds._classify_character judges/verdicts.name_places
        features/worlds/store_search._hash_importance toolkit/math_answers/expressions._find_factorial
        features/atropos/store._prepare_body_query
    """,
    "classes, tables and statements of the code": """
        characters/schema._list_visible_fields domain/values._find_holding domain/values._list_field_names
        domain/values._docstrings_in envs/text_to_sql/queries._list_fields
        http/api/environment_routes._build_request_model http/compat/openenv/server._build_schemas
        http/web/bodies._list_places store/database.insert_new
        store/pending_groups._select_abandoned store/statements._repeat_values store/statements._list_columns
        store/statements._find_dialect store/statements._write_copy store/statements._compile_insert
        store/statements._compile_merge store/statements.cache store/judge_limits._identify
        sandbox/confinement._parse_table cli/envs/check._get_shared_subject
    """,
    "files that ship with the code, and what is drawn from them": """
        cli/judges.load_packaged_specimens envs/code_exec/exercises._parse_functions
        envs/code_exec/exercises.read_all_families envs/code_exec/exercises.group_by_level
        envs/code_exec/exercises.digest_families envs/code_exec/row_programs._read_text
        envs/instruction_following/ifeval_checks.list_languages envs/instruction_following/ifeval_checks.cache
        envs/instruction_following/texts._read_english_words envs/reasoning_gym/environment._compute_digests
        envs/reasoning_gym/package_rows._make_entry envs/reasoning_gym/package_rows._open_shared
        envs/reasoning_gym/package_rows._build_config envs/reasoning_gym/package_rows._build_level_config
        envs/regex_match/environment.list_hidden_strings envs/text_to_sql/databases.read_domains
        envs/text_to_sql/databases._list_labels envs/text_to_sql/databases._list_numbers
        envs/text_to_sql/databases._list_dates judges/gate_checks._compile_narration judges/gate_wordings.read_wordings
        judges/gate_wordings._compile_kind judges/gate_wordings._compile_all_kinds judges/gate_wordings._compile_excuses
        judges/gate_wordings._compile_verdicts judges/gates._list_gates judges/gold_cases.load_packaged_templates
        judges/offline.load_languages judges/offline._load_stop_words judges/prompts._render_rules
    """,
    "what the settings name, one for each": """
        datasets/configured_datasets.cache inference/connection._match_escaped judges/judge_client._locate_server
        judges/panel.lru_cache envs/tool_calling/rows.select_rows
    """,
    "a few hundred bytes each, of numbers and short words": """
        domain/judging._build_criterion domain/judging._measure_spread service/task_order._read_label
        judges/verdicts._begin_keyed_hash
    """,
    "a score, whose rationale is a sentence or two; too many are made anew for each to be measured": """
        domain/scores._build_exact domain/scores.pending service/judging._complete_score
        store/group_rows._list_score_values
    """,
    "2,000 small numbers each": "service/task_order._build_block",
}
"""What bounds the bytes of an entry, and the functions, or calls without a name, of which that is true."""
CACHES: Final = {"lru_cache", "cache"}


def list_caches() -> Iterator[str]:
    """`room/module.function` where `lru_cache` or `cache` decorates one, and its own name where it is called."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        module = path.relative_to(ROOT / "app").with_suffix("").as_posix()
        decorating = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                decorating |= set(node.decorator_list)
                yield from (f"{module}.{node.name}" for one in node.decorator_list if find_name(one) in CACHES)
            elif isinstance(node, ast.Call) and node not in decorating:
                called = node.func.func if isinstance(node.func, ast.Call) else node.func
                if find_name(called) in CACHES and (node.func is not called or find_name(called) == "cache"):
                    yield f"{module}.{find_name(called)}"


def find_name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.id if isinstance(called, ast.Name) else ""


def test_a_cache_without_a_bound_in_bytes_says_why_it_is_small() -> None:
    assert sorted(list_caches()) == sorted(name for names in BOUNDED.values() for name in names.split())


def list_bounds() -> Iterator[int]:
    """Of `remember`, in bytes."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and find_name(node) == "remember" and not isinstance(node.func, ast.Call):
                bound = ast.unparse(node.args[0])
                if "MEBIBYTE" in bound:
                    yield int(bound.removesuffix("MEBIBYTE").removesuffix(" * ") or 1) * MEBIBYTE


def test_the_page_for_operators_says_what_functions_keep_together() -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert f"| {sum(list_bounds()) // MEBIBYTE} MiB | results of functions of texts" in page
