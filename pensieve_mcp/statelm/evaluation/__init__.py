"""Does it read what is longer than its window? Suites of made questions over real text, the loop beside fixed
workflows, and the report that sets both beside the paper's table.

Everything is made here from what lies on a machine with Python, by seed; nothing is fetched. Judged by string alone.
"""
