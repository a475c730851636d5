"""The data types of the service, frozen. Nothing here does I/O or knows a library but pydantic."""
