"""Worlds, what happened in them, and their lorebooks: stored, searched, read and written.

Take it away and prompts have no events; the retriever over its ports stays in `app.rag`.
"""
