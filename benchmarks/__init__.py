"""Throughput as ratios: what the gateway does against a named limit on the same machine in the same run."""
