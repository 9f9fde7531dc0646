"""Logs, commands and ports of engines."""
