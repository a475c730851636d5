"""What models wrote: killable workers parse it, and jails run it."""
