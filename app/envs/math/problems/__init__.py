"""Generated mathematics problems with exact answers in LaTeX, computed with fractions and closed forms."""
