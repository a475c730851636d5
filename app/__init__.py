"""One gateway that hosts every environment, hands out tasks, scores answers and keeps what happened.

Read from the bottom up:

    main        the composition root: create_app, the gateway put together, discovery
    settings    the only reader of the process environment
    cli         the command line
    features    what can be taken away whole: run health, labels, worlds, authoring, talking, exports, the Atropos queue
    terminal    what commands share: where they print, and the client that asks a running gateway
    http        api for programs, compat for other trainers' wires, viewer for people; web is what they share
    envs        one folder per environment, with everything that only it uses
    judges      chat judges, the offline judge, gates, panels      rag        retrieval into prompts
    store       tables, queries, the writer                        datasets   hub and folder data sets
    sandbox     killable workers, jails for programs               telemetry  metrics and logs
    inference   clients of OpenAI-compatible servers
    service     the verbs: hand out, step, score, re-score, export
    evaluation  statistics of held-out attempts, comparisons, reports
    characters  character sheets, cards, lorebooks
    toolkit     what environments share: answers, tool calls, mathematics, procedural tasks, conformance checks
    ports       the seams between the core and everything that touches the world
    domain      the words: Task, Completion, Score, Judgement, Run …; errors, rewards, digests

Imports point down this list only; `pyproject.toml` holds the contracts and the tests check them.
"""
