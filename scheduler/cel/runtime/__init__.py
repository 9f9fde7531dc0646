"""Evaluation of a checked selector: values, functions, conversions, and the machine."""
