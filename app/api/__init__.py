"""The native HTTP surface."""
