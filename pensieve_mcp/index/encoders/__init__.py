"""Text to vectors: the shipped static table, MiniLM in int8, any sentence-transformers model."""
