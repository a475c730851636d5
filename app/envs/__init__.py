"""One file per environment, its data in a folder of the same name beside it. Discovered, never listed."""
