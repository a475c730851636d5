"""A retriever of the operator's, asked over HTTP."""
