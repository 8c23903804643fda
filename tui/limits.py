"""Sizes of the terminal, in columns and lines."""

SMALLEST = (80, 24)  # below, nothing can be shown that would help
WIDE = 110  # columns from which map and explanation stand beside the table
TALL = 34  # lines from which the loss curve is always there
