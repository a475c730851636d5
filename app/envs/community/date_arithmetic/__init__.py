"""Add days and months to a date."""
