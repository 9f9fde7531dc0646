"""Commands that only read: get, describe, events, explain, logs, schema, ui."""
