"""Where a question points: lexical and dense retrieval over passages. Derived; deleting it is ordinary."""
