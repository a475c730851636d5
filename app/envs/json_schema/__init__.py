"""Extract a record that fits a JSON schema."""
