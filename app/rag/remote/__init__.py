"""Remote retrievers over HTTP."""
