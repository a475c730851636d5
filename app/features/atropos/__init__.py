"""Groups queue here for Atropos trainers, which speak to it as to Atropos' own server.

Take it away and the paths below `/atropos` go, with their tables.
"""
