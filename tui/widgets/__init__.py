"""The panes: each keeps its lines and redraws only those that changed."""
