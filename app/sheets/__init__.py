"""Character sheets: their schema, and reading them from YAML."""
