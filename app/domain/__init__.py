"""The words of the service as frozen data. Nothing here does I/O or knows a library but pydantic."""
