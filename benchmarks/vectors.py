"""Vector search at a million rows, in one run: our store against float32 brute force, CPU time and recall.

    python benchmarks/vectors.py [--rows 1000000] [--text FOLDER] [--dim 384]

Vectors are static embeddings of real text (of FOLDER's files, or this repository's and Python's own sources), then
mixtures of two of them with noise, without duplicates. Questions are further embeddings of such text. Set
OPENBLAS_NUM_THREADS=1: rates are CPU time of one thread. The bar: at most 1/5 of brute force at recall@10 >= 0.92.
With --rows 100000 the same is told for a middling folder (recall@10 there: at least 0.97).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pensieve_mcp.index.encoders import open_encoder
from pensieve_mcp.index.vectors import VectorStore

PASSAGE_CHARACTERS = 600
REAL_ROWS = 60_000
QUESTIONS = 40
K, MANY = 10, 50
PART = 100_000


def passages(folders: list[Path], wanted: int) -> list[str]:
    files = sorted(
        p for folder in folders for p in folder.rglob("*") if p.suffix in (".py", ".md", ".txt", ".rst")
    )
    random.Random(1).shuffle(files)
    found: dict[str, None] = {}
    for file in files:
        text = file.read_text(encoding="utf-8", errors="ignore")[:200_000]
        for start in range(0, len(text), PASSAGE_CHARACTERS):
            found[text[start : start + PASSAGE_CHARACTERS]] = None
        if len(found) >= wanted:
            break
    return list(found)


def mixtures(real: NDArray[np.float32], rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
    one, two = (real[rng.integers(0, len(real), rows)] for _ in range(2))
    share = rng.uniform(0.3, 0.7, (rows, 1)).astype(np.float32)
    mixed = one * share + two * (1 - share)
    mixed += rng.normal(0, 0.25 / np.sqrt(real.shape[1]), mixed.shape).astype(np.float32)
    return np.asarray(mixed / np.linalg.norm(mixed, axis=1, keepdims=True), np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--text", type=Path)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    folders = [args.text] if args.text else [Path(__file__).parents[1], Path(sysconfig.get_path("stdlib"))]
    encoder = open_encoder("static")
    texts = passages(folders, REAL_ROWS)
    begun = time.process_time()
    real = encoder.documents(texts)
    rate = sum(map(len, texts)) / 1e6 / (time.process_time() - begun)
    questions, real = (
        real[:: len(real) // QUESTIONS][:QUESTIONS],
        np.delete(real, np.s_[:: len(real) // QUESTIONS], axis=0),
    )
    result: dict[str, object] = {"rows": args.rows, "dim": encoder.dim, "real_rows": len(real)}
    result["static_megabytes_per_cpu_second"] = round(rate, 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        everything = np.lib.format.open_memmap(
            folder / "float32.npy", mode="w+", dtype=np.float32, shape=(args.rows, encoder.dim)
        )
        store = VectorStore.open(folder / "vectors")
        spent = 0.0
        for start in range(0, args.rows, PART):
            rows = min(PART, args.rows - start)
            part = real[:rows] if start == 0 and len(real) >= rows else mixtures(real, rows, rng)
            if start == 0 and len(real) < rows:
                part[: len(real)] = real
            everything[start : start + rows] = part
            begun = time.process_time()
            numbers = np.arange(start, start + rows)
            store.add(numbers, numbers // 20, part)
            store.commit(start // PART + 1)
            spent += time.process_time() - begun
        result["added_per_cpu_second"] = round(args.rows / spent)
        result["store"] = store.stats()
        truth, brute, ours, recall, recall_many = [], [], [], [], []
        for question in questions:  # reads everything once, so both sides find their pages in memory
            begun = time.process_time()
            scores = everything @ question
            best = np.argpartition(-scores, K)[:K]
            brute.append(time.process_time() - begun)
            truth.append((set(map(int, best)), set(map(int, np.argpartition(-scores, MANY)[:MANY]))))
        for question in questions:
            store.search(question, K)
        for question, (true, true_many) in zip(questions, truth, strict=True):
            begun = time.process_time()
            found, _ = store.search(question, K)
            ours.append(time.process_time() - begun)
            recall.append(len(true & set(map(int, found))) / K)
            recall_many.append(len(true_many & set(map(int, store.search(question, MANY)[0]))) / MANY)
        allowed = np.arange(0, args.rows // 20, 10)
        begun = time.process_time()
        for question in questions[:10]:
            store.search(question, K, allowed_documents=allowed)
        result["filtered_to_a_tenth_ms"] = round((time.process_time() - begun) * 100, 1)
    result["brute_force_float32_ms"] = round(1_000 * float(np.median(brute)), 1)
    result["store_ms"] = round(1_000 * float(np.median(ours)), 1)
    result["ratio"] = round(float(np.median(ours) / np.median(brute)), 3)
    result["recall_at_10"] = round(float(np.mean(recall)), 3)
    result[f"recall_at_{MANY}"] = round(float(np.mean(recall_many)), 3)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
