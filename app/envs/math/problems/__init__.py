"""Mathematics problems made from numbers, with their exact answers in LaTeX: by fractions and closed forms of our own.

`writing` writes LaTeX, `families` lists what kinds there are; each of the other modules makes those of one topic.
"""
