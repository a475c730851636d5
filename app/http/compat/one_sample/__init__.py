"""Rewards for trainers that send one sample at a time and do not know groups."""
