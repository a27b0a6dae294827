"""Extractors: a file's bytes to one canonical text with positions, inside a worker process."""
