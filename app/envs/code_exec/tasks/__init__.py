"""Functions to be written: families of them with a reference each, inputs to try them on, and what they should give."""
