"""Environments contributed from outside, under the same contract suite."""
