"""Reply to a conversation, judged by a preference."""
