"""Reference solutions of the exercises, one module for each family, with their words beside them."""
