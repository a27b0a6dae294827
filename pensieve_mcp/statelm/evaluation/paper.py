"""The paper's own numbers (arXiv 2602.12108, tables 2 to 4), to set a report beside. Other sets than ours: the same
kind of task, never the same questions."""

from __future__ import annotations

K = 1_024

NEEDLE_LENGTHS = (32 * K, 64 * K, 128 * K, 256 * K, 512 * K, 768 * K, K * K, 2 * K * K)
NEEDLE: dict[str, tuple[float, ...]] = {
    "Qwen3-4B/8B/14B, 128K window": (100, 100, 88.33, 41.67, 23.33, 16.67, 3.33, 1.7),
    "StateLM-4B": (95.00, 95.56, 95.56, 88.33, 76.67, 62.78, 53.89, 32.22),
    "StateLM-8B": (99.44, 98.33, 98.33, 99.44, 95.55, 88.89, 88.89, 67.22),
    "StateLM-14B": (100, 100, 99.44, 97.78, 89.45, 94.44, 95.00, 83.89),
}
"""Accuracy in percent with the search removed, by length."""

MAIN_SETS = ("NovelQA", "∞Bench", "LongMemEval-S", "BrowseComp+")
MAIN: dict[str, tuple[float | None, ...]] = {
    "Qwen3-235B, tools, untrained, 256K": (80.71, 73.36, 67.00, 55.33),
    "RL-MemoryAgent-14B, 32K": (78.86, 74.24, 59.00, None),
    "ReadAgent-14B, 32K": (23.12, 34.06, 14.60, None),
    "Qwen3-8B, 128K": (65.87, 66.81, 45.40, 5.56),
    "StateLM-8B, 32K": (83.84, 70.16, 58.93, 46.22),
    "Qwen3-14B, 128K": (77.94, 74.96, 54.07, 5.46),
    "StateLM-14B-RL, 32K": (84.85, 78.46, 64.47, 52.67),
}
"""Accuracy in percent."""

TOOL_USE: dict[str, tuple[str, ...]] = {
    "NovelQA (119K)": ("19.6", "4.5", "6.6", "2.2"),
    "∞Bench (189K)": ("21.0", "4.3", "6.3", "4.2"),
    "LongMemEval-S (115K)": ("24.5", "5.6", "8.9", "2.3"),
    "BrowseComp+ (552K)": ("22.5", "3.8", "5.2", "7.9"),
}
"""StateLM-8B: rounds, memory operations, deletions, searches a question."""

BESIDE: dict[str, tuple[str, ...]] = {
    "qa": ("NovelQA", "∞Bench"),
    "chat": ("LongMemEval-S",),
    "deep": ("BrowseComp+",),
}
"""Our suite → the paper's sets of that kind."""
