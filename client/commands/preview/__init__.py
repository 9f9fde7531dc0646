"""Verbs that show what would happen: plan, render, validate."""
