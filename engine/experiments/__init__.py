"""Measured experiments, made again by one command each: what was published, what comes out here."""
