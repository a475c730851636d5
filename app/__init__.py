"""One gateway that hosts every environment, hands out tasks, scores answers and keeps what happened.

Read in this order:

    errors      what can go wrong, drawn as a tree
    draws       even choices out of a seed          patterns   regular expressions that strangers write
    tokens      about how many a text takes
    intervals   how sure a measured share is        shown      texts and numbers, ready to be looked at
    terms       what a text is found by
    domain      the words: Task, Completion, Score, Criterion, Judgement, Run …
    ports       the seams between the core and everything that touches the world
    rewards     how parts become a reward; the statistics of a group
    prompts     templates and digests        sheets      character sheets
    lorebooks   which of their entries a conversation calls up
    grading     what a reply commits to          word_problems   arithmetic made from stories
    instructions    that a program can check, and texts that follow them
    conversations   that wait for a reply, as data sets hold them and as we wrote them
    calls       tool calls in replies           tool_tasks      tasks that ask for them
    math_answers    in LaTeX, and whether they are right    math_problems   made from numbers
    coding_tasks    functions to be written, and the inputs to try them on
    json_tasks      records by a schema, told and broken
    answer_pairs    two answers, of which one is better
    sql_tasks       questions about small databases, and running a query
    simulations     small services with a state, for agents to work on
    transcripts     of episodes, replayed move by move
    service     the verbs: next_batch, step, score
    generated   what environments share whose tasks are made
    conformance what every environment must do, and how that is checked
    evaluation  what a model's attempts at held-out tasks amount to: figures, comparisons, reports
    envs        one file per environment     judges      who reads a group, and how a panel decides
    sources     where data sets come from    rag         what is retrieved into a prompt
    sandbox     killable workers, jails      policies    clients of inference servers
    exports     training data out of what is stored
    store       tables, queries, the writer  telemetry   metrics and logs
    web         what every door shares       api, viewer the doors: for programs, for people
    compat      doors that speak as other services do
    settings    the one reader of the process environment
    discovery   what stands in a folder or behind an entry point
    configured  what the settings name, made    assembled   the gateway, put together
    main        the one place where concrete classes meet
    cli         the command line

Imports point down this list's layers only; `pyproject.toml` holds the contract and the tests check it.
"""
