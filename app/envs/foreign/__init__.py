"""Environments that run on others' servers or in children with packages of their own, one file a kind."""
