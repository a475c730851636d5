"""Processes of ours for what strangers wrote: killable workers that parse it, and jails that run it."""
