"""The step-wise generator, and the rules of decoding."""
