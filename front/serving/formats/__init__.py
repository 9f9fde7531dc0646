"""Content negotiation, and the formats of request bodies."""
