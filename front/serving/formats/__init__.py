"""The forms in which bodies come and answers are wanted."""
