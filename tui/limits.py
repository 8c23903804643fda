"""How small a terminal may be."""

SMALLEST = (80, 24)  # columns, lines
