"""Grade-school word problems with one number as the answer."""
