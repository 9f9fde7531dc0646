"""Commands that send requests to models."""
