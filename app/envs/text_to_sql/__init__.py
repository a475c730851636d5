"""Answer a question with one SQL query."""
