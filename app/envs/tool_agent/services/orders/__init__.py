"""A shop: its customers, their orders, and what comes back."""
