"""Message dialects of model APIs, read with the exact places of what stands in them. Layer 4; knows no ledger."""
