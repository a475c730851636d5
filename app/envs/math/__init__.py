"""Mathematics problems with answers in LaTeX."""
