"""Rewards for trainers that ask for one sample at a time and know nothing of groups."""
