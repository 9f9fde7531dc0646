"""Programs the testbed runs: pinned versions, downloads, builds from Go modules."""
