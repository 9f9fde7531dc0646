"""What rendering reads: cluster facts, operator settings, and the helpers that check untrusted specs."""
