"""What is in the folders: walking, change detection, extraction, canonical text, chunks, positions."""
