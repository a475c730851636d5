"""`atropos-envs evaluate`: a model's attempts at the tasks of a split, scored by a gateway, and a report on them."""
