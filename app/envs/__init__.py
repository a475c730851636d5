"""One folder per environment: `environment.py` and everything that only it uses. Discovered, never listed."""
