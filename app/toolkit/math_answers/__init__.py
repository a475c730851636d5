"""Answers in LaTeX: extraction, parsing and grading.

Read in this order: `committing` (boxes), `expressions` (a reader of our own), `forms` (what is left undone),
`structures` (lists, tuples, intervals, matrices), `checking` (all of it together), `symbolic` (math-verify, only ever
imported in a worker).
"""
