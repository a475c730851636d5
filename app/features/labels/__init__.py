"""People's judgements of groups and replies: a queue of what to label, and what was said.

Take it away and no judge is compared with people.
"""
