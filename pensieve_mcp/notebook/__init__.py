"""What was learned: notes with evidence and revisions. Precious."""
