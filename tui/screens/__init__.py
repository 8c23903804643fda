"""What opens over the walk: help, choices, questions."""
