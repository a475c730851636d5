"""Statistics of a model's attempts at held-out tasks: figures with intervals, comparisons, reports. Pure."""
