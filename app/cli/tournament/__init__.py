"""`atropos-envs tournament`: the strength of checkpoints, by a judge who reads their replies in pairs."""
