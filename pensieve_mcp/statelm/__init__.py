"""StateLM: our own loop, in which a model reads, notes and deletes until it can answer.

s' = F(s, a, o): `conversation.py` holds the state over the ledger's fold, `dialects/` print it for a kind of model and
read its action, `loop.py` turns, `backends/` reach models, `extractive.py` is the policy without one. The bundled model
and its training lie in `bundled.py` and `training/`. Not here: how spells work (spellbook), and who asks (the shell,
the server through `port.py`).
"""
