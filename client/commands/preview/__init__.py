"""Commands that show an effect and change nothing: plan, render, validate."""
