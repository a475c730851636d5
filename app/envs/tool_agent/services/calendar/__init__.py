"""A calendar: look up people and events, make, move and cancel them."""
