"""What is generated: each module makes one subject's Markdown from the code that it describes."""
