"""What is retrieved into prompts."""
