"""Documents, their split, and the windows a model is trained on."""
