"""Tables, queries and the one writer. SQL lives here and in features' stores."""
