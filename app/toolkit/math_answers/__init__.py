"""Answers in LaTeX: what a reply commits to, how it is read, and whether it is right."""
