"""`atropos-envs envs`: which environments there are, whether one does what it must, and a new one to begin with."""
