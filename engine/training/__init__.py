"""The step-wise trainer, and optimizers taken apart."""
