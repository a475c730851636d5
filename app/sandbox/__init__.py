"""Killable workers: processes of ours with limits, for whatever parses or runs untrusted text."""
