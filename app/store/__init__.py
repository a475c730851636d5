"""Tables, queries and the one writer. SQL lives here and nowhere else."""
