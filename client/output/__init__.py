"""What users read: tables, machine formats, progress, plans as text."""
