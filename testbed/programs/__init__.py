"""The programs of the testbed: pinned versions, downloads, builds from Go modules."""
