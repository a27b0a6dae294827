"""What is in mind, what was forgotten: events that are added and never edited, and their fold."""
