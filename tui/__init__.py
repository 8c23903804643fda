"""The screen: a client of a worker, which knows walks and no model."""
