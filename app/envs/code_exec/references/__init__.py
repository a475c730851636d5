"""Reference solutions of the exercises, one module for each family, with their words beside them.

A new family is a function with the parameters as keyword-only arguments, and an entry in the YAML beside its module:
level, statement with `{slots}`, values of the parameters, shapes of the arguments, edge cases.
`tests/envs/code_exec/test_families.py` checks that combinations differ, that the gold passes, and that neighbours,
constants and echoes fail.
"""
