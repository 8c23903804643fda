"""The worker that owns tensors, and the client that asks it for slices."""
