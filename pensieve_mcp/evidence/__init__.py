"""Whether what a note rests on really stands there: looked up when noted, and again whenever it is read.

A quote is evidence only where it can be found in a document or an earlier message. Looked up again it is `ok`, `moved`
(with the new place), `changed` (with what stands there now), `gone` or `unsupported`. A file that is as it was is not
read again; one that changed since it was indexed is read anew by itself, so that the answer is about the file and not
about the index. A note is never lost over its evidence: what cannot be looked up is a state, not an error.

`pages.py` are texts as they stand now, `witness.py` judges a piece of evidence, `checking.py` goes through notes,
`validity.py` says when the time of a note is over.
"""

from pensieve_mcp.evidence.checking import Change, Checked, check_all, check_note, look_up
from pensieve_mcp.evidence.validity import expiry, validity
from pensieve_mcp.evidence.witness import Witness

__all__ = ["Change", "Checked", "Witness", "check_all", "check_note", "expiry", "look_up", "validity"]
