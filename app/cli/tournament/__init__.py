"""`atropos-envs tournament`: the strength of checkpoints, by a judge who reads their stored replies in pairs."""
