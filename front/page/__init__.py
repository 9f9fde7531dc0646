"""The read-only web page at `/`, which shows the fleet.

This package contains its files and HTTP headers. They include no data and are the same
for everybody. The page reads the API with its user's token, so the API decides what the
page can show. The files are served unchanged: there is no build step, and nothing is
loaded from other hosts.
"""
