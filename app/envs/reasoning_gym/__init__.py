"""The task families of the package reasoning-gym, scored by its own scorers."""
