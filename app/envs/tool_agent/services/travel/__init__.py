"""Journeys: trains, flights and hotels to search, book, change and cancel."""
