"""`atropos-envs process`: tasks from a gateway, completions from an inference server, scored groups to a trainer."""
