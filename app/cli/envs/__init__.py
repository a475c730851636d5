"""`atropos-envs envs`: list, check and create environments."""
