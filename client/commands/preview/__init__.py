"""Verbs that show what would be done, and change nothing: plan, render, validate."""
