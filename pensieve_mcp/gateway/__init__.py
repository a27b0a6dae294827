"""The gateway: a streaming pass-through between a host and its model's API that makes forgetting physical.

`rewrite.py` is the pure core, `timing.py` decides when a deletion pays, `proxy.py` moves the bytes, `keeping.py`
meets the server in the ledger, `hosts.py` starts a host behind it.
"""
