"""Adding ourselves to a host agent's configuration, and taking ourselves out again.

Nothing here starts a host or reads the environment by itself: the shell hands in a `Machine`. What a host is, where its
configuration lies and what an entry looks like stands in `catalog.py`; how a file is changed without touching the rest
of it, in `jsonc.py`, `toml_tables.py` and `yaml_blocks.py`; what is wrong with an installation, in `checkup.py`.
"""
