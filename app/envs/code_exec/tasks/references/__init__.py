"""What is asked of a function, each with a right answer: code in modules, and beside them in YAML words and inputs."""
