"""Gathers the short texts our static table is fitted on, from packages whose licences let anybody use them.

What comes from where, and under which licence, stands in `static_table_sources.md`. None of it belongs to a
set we measure retrieval with; `--exclude` drops whatever shares eight words in a row with such a set all the same.
Leaves the encoding and the fitting to `make_static_table.py`.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import html
import json
import random
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

SIZES = (70, 140, 280, 450, 600)  # characters: queries and notes are short, passages are about 600
SHINGLE_WORDS = 8
SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+|\n\s*\n")


def windows(text: str, rng: random.Random) -> Iterator[str]:
    """Cut at sentence ends, near a size drawn anew for each piece."""
    ends = [m.end() for m in SENTENCE_END.finditer(text)] + [len(text)]
    start, size = 0, rng.choice(SIZES)
    for end in ends:
        if end - start >= size or end == len(text):
            piece = " ".join(text[start : min(end, start + 700)].split())
            if len(piece) >= 25:
                yield piece
            start, size = end, rng.choice(SIZES)


def wordnet(root: Path, rng: random.Random) -> Iterator[str]:
    """Glosses alone, and each gloss followed by those of the words one step below it: a passage on one topic."""
    for part in ("noun", "verb", "adj", "adv"):
        entries: dict[str, str] = {}
        below: dict[str, list[str]] = {}
        for line in (root / "usr/share/wordnet" / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  "):
                continue
            head, _, gloss = line.partition(" | ")
            fields = head.split()
            count = int(fields[3], 16)
            lemmas = [fields[4 + 2 * i].replace("_", " ") for i in range(min(count, 3))]
            entries[fields[0]] = f"{', '.join(lemmas)}: {gloss.strip()}."
            for here in range(5 + 2 * count, len(fields) - 3):
                if fields[here] in ("@", "@i"):
                    below.setdefault(fields[here + 1], []).append(fields[0])
        for offset, text in entries.items():
            yield text
            children = below.get(offset, [])
            if len(children) >= 2:
                rng.shuffle(children)
                joined = text + " " + " ".join(entries[c] for c in children if c in entries)
                yield joined[: rng.choice((300, 600))]


def austen(root: Path, rng: random.Random) -> Iterator[str]:
    """Strings of the R data file: blocks of an unpacked size and zlib; in them one string per line of a novel."""
    raw = next(root.rglob("Rdata.rdb")).read_bytes()
    while len(raw) > 4:
        unpacker = zlib.decompressobj()
        data, raw = unpacker.decompress(raw[4:]), unpacker.unused_data
        lines, here = [], 0
        while (here := data.find(b"\x00\x04\x00\x09", here)) >= 0:  # header of a character string in ASCII
            length = int.from_bytes(data[here + 4 : here + 8], "big")
            lines.append(data[here + 8 : here + 8 + length].decode("latin-1"))
            here += 8 + length
        yield from windows("\n".join(lines), rng)


def kjv(path: Path, rng: random.Random) -> Iterator[str]:
    verses = [re.sub(r"^\w+:\d+ ", "", line) for line in path.read_text().splitlines()]
    yield from windows("\n".join(verses), rng)


def jargon(root: Path, rng: random.Random) -> Iterator[str]:
    with gzip.open(next(root.rglob("jargon.dict.dz")), "rt", encoding="utf-8", errors="ignore") as lines:
        yield from windows(lines.read(), rng)


def web_pages(root: Path, rng: random.Random) -> Iterator[str]:
    for page in sorted(root.rglob("*.html")):
        if "release" in page.name or page.name.startswith(("bookindex", "version")):
            continue
        text = re.sub(r"(?s)<(script|style).*?</\1>", " ", page.read_text(encoding="utf-8", errors="ignore"))
        text = re.sub(r"</(p|div|li|tr|h\d)>", "\n\n", text)
        yield from windows(html.unescape(re.sub(r"<[^>]+>", " ", text)), rng)


def pods(root: Path, rng: random.Random) -> Iterator[str]:
    for page in sorted(root.rglob("*.pod")):
        if page.stem not in ("perltoc", "perluniprops", "perlapi"):
            yield from windows(re.sub(r"(?m)^=\w+|[A-Z]<+|>+", " ", page.read_text(encoding="latin-1")), rng)


def python_code(wheels: Path, rng: random.Random, *, documentation: bool) -> Iterator[str]:
    """Docstrings, or functions with their first lines, of the wheels in a folder."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.endswith(".py") or "/tests/" in name or archive.getinfo(name).file_size > 300_000:
                    continue
                source = archive.read(name).decode("utf-8", errors="ignore")
                try:
                    tree = ast.parse(source)
                except (SyntaxError, ValueError):
                    continue
                for node in ast.walk(tree):
                    if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                        continue
                    doc = ast.get_docstring(node) or ""
                    if documentation and len(doc) > 60:
                        yield from windows(doc[:4000], rng)
                    elif not documentation and isinstance(node, ast.FunctionDef) and len(node.body) > 2:
                        body = ast.get_source_segment(source, node) or ""
                        yield (
                            body.replace(doc, "")[: rng.choice((250, 600))]
                            if rng.random() < 0.5
                            else body[:600]
                        )


def read_mes(wheels: Path, rng: random.Random) -> Iterator[str]:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(("METADATA", ".rst", ".md")) or "/datasets/descr" in name:
                    yield from windows(archive.read(name).decode("utf-8", errors="ignore"), rng)


def conversations(wheels: Path, rng: random.Random) -> Iterator[str]:
    wheel = next(wheels.glob("chatterbot_corpus*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if "/data/english/" in name and name.endswith(".yml"):
                lines = archive.read(name).decode("utf-8", errors="ignore").splitlines()
                said = [line.lstrip("- ").strip() for line in lines if line.lstrip().startswith("-")]
                yield from said
                for start in range(0, len(said) - 4, 4):
                    yield "\n".join(said[start : start + 4])


OPENERS = (
    "I really like {a}, mostly because of {b}.", "I can't stand {a}.", "I am allergic to {a}, so no {b} please.",
    "I would rather have {a} than {b}.", "My sister bought {a} last {day} and now she talks about {b} all the time.",
    "We went to see {a} on {day}; it reminded me of {b}.", "I never {verb} when there is {a} around.",
    "I'm looking for {a} that does not need {b}. Any suggestions?", "What do you recommend for {a}?",
    "Remember that I avoid {a} and prefer {b}.", "Could you help me {verb} before {day}? I only have {a} and {b}.",
    "User: I want to {verb}. Assistant: You could try {a}, or {b} if that is easier.",
    "The meeting about {a} was moved to {day}; {name} will bring {b}.", "{name}: How was {a}? Did you {verb}?",
    "{name} said that {b} costs more than {a} and that we should wait until {day}.",
    "Since my accident I can't {verb}, so {a} is out of the question.", "How do I {verb} without {a}?",
    "I grew up with {a}; {b} makes me nervous.", "{name} works with {a} and studies {b} in the evening.",
    "I've decided to give up {a} this year and to {verb} more often.",
)  # fmt: skip
NAMES = ("Ana", "Tom", "Maria", "Joe", "Mei", "Omar", "Lena", "Sam", "Priya", "Ivan", "Kate", "Luis")


def first_person(root: Path, rng: random.Random) -> Iterator[str]:
    """Our own sentences about likes and plans, with words of WordNet: the packages hold hardly any such talk."""
    nouns = [
        line.split()[4].replace("_", " ")
        for line in (root / "usr/share/wordnet/data.noun").read_text(encoding="latin-1").splitlines()
        if not line.startswith("  ")
        and line.split()[1] in ("04", "06", "13", "05", "20", "14", "15", "09", "26")
    ]
    verbs = [
        line.split()[4].replace("_", " ")
        for line in (root / "usr/share/wordnet/data.verb").read_text(encoding="latin-1").splitlines()
        if not line.startswith("  ")
    ]
    days = ("Monday", "Friday", "the weekend", "next month", "summer", "my birthday", "tomorrow")
    while True:
        yield " ".join(
            rng.choice(OPENERS).format(
                a=rng.choice(nouns),
                b=rng.choice(nouns),
                verb=rng.choice(verbs),
                day=rng.choice(days),
                name=rng.choice(NAMES),
            )
            for _ in range(rng.choice((1, 1, 2, 4)))
        )


def draw(source: Iterator[str], wanted: int, rng: random.Random) -> list[str]:
    """A uniform sample of `wanted` different texts, from at most 200,000."""
    pool: dict[str, None] = {}
    for text in source:
        pool[text] = None
        if len(pool) >= 200_000 or (len(pool) >= wanted * 40):
            break
    texts = list(pool)
    return rng.sample(texts, min(wanted, len(texts)))


def shingles(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + SHINGLE_WORDS]) for i in range(len(words) - SHINGLE_WORDS + 1)}


def gather(
    debs: Path, wheels: Path, kjv_text: Path, exclude: Path | None, scale: float
) -> dict[str, list[str]]:
    """Texts by source. `scale` 1.0 asks for about 58,000."""
    plan: dict[str, tuple[int, Callable[[random.Random], Iterator[str]]]] = {
        "wordnet": (19_000, lambda r: wordnet(debs / "wordnet-base", r)),
        "austen": (6_500, lambda r: austen(debs / "r-cran-janeaustenr", r)),
        "kjv": (2_000, lambda r: kjv(kjv_text, r)),
        "jargon": (3_000, lambda r: jargon(debs / "dict-jargon", r)),
        "postgresql": (3_000, lambda r: web_pages(debs / "postgresql-doc-15", r)),
        "perl": (2_000, lambda r: pods(debs / "perl-doc", r)),
        "docstrings": (8_000, lambda r: python_code(wheels, r, documentation=True)),
        "functions": (5_000, lambda r: python_code(wheels, r, documentation=False)),
        "read-mes": (2_500, lambda r: read_mes(wheels, r)),
        "conversations": (2_500, lambda r: conversations(wheels, r)),
        "first-person": (5_000, lambda r: first_person(debs / "wordnet-base", r)),
    }
    forbidden: set[str] = set()
    for path in sorted(exclude.rglob("corpus.jsonl.gz")) if exclude else ():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                forbidden |= shingles(json.loads(line)["text"])
    chosen: dict[str, list[str]] = {}
    for name, (wanted, source) in plan.items():
        rng = random.Random(f"{name} 2026")
        texts = draw(source(rng), round(wanted * scale), rng)
        chosen[name] = [t for t in texts if not (forbidden and shingles(t) & forbidden)]
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--debs", type=Path, required=True, help="folder with one unpacked Debian package each"
    )
    parser.add_argument(
        "--wheels", type=Path, required=True, help="folder with wheels (pip download --no-deps)"
    )
    parser.add_argument("--kjv", type=Path, required=True, help="output of: bible -f 'gen1:1-rev22:21'")
    parser.add_argument("--exclude", type=Path, help="folder with sets whose texts must not be trained on")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    chosen = gather(args.debs, args.wheels, args.kjv, args.exclude, args.scale)
    texts = [text for part in chosen.values() for text in part]
    random.Random(7).shuffle(texts)
    args.out.write_text("\n".join(json.dumps(t) for t in texts) + "\n", encoding="utf-8")
    args.out.with_suffix(".counts.json").write_text(
        json.dumps({k: len(v) for k, v in chosen.items()}, indent=1)
    )


if __name__ == "__main__":
    main()
