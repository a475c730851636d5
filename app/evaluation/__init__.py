"""What a model's attempts at held-out tasks amount to: figures with intervals, comparisons, reports. Pure."""
