"""Programming tasks: families of functions, their references, test inputs and expected results."""
