"""Conformance checks for all environments, shared by the tests and `atropos-envs envs check`."""
