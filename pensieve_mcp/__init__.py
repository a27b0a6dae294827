"""pensieve_mcp: the wand over a language model's own context.

Nothing is imported here: the first answer of the server and `pensieve note list` must not wait for
what they do not use.
"""
