"""Questions about small databases: schemas, rows, questions, wrong queries, and running a query."""
