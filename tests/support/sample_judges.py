"""Judges to look at."""

from app.domain.judging import JudgeReport, Spending
from app.service.gateway import JudgeEntry

JUDGES = (
    JudgeEntry(name="offline", model="lexical-1", environments=("npc_arena",), report=None),
    JudgeEntry(
        name="careful",
        model="<b>judge</b>-70b",
        environments=("npc_arena", "rlaif"),
        report=JudgeReport(
            health="out",
            last_error='<script>document.title = "owned"</script>\u202e' + "unbroken" * 40,
            in_flight=3,
            queued=12,
            limit=64,
            share=16,
            spent=Spending(readings=1200, calls=1300, input_tokens=3_120_000, output_tokens=41_200, cost_usd=14.80125),
            spent_today=Spending(readings=12, calls=13, cost_usd=0.148),
            budget_left_usd=85.2,
            budget_left_tokens=None,
            cache_hits=7,
            changes=("temperature is left out",),
            ignored=("response_format",),
        ),
    ),
)
