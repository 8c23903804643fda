"""Text to tokens to IDs, and back."""
