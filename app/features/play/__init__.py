"""People talk to characters, in the browser or through a chat client, by the prompt of training.

Take it away and characters answer trainers alone. The one feature that stands on others: worlds, authoring, labels.
"""
