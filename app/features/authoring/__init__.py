"""Authors write sheets and scenes in the browser; each saved text is a revision, and the newest is in force.

Take it away and the folder of character sheets alone is served.
"""
