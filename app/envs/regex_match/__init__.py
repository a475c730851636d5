"""Write a regular expression that matches examples."""
