"""Runs: trainings with a directory that survives their process."""
