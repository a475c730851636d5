"""Tool calls in replies: read in whatever format a model writes them, held against what was expected, and tools rendered
for models that know none."""
