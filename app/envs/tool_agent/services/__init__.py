"""Small services with a state, which a model works on by calling their tools: pure, replayed from the transcript."""
