"""Bytes to text: which encoding, how sure, and how many characters were lost.

A text is never refused for bad bytes; what cannot be decoded becomes U+FFFD and is counted. The cascade (facts
section 4, measured on 425 files): byte order mark; NUL pattern of UTF-16/32; strict UTF-8 over the whole file;
ISO-2022 escapes; the declared charset; the person's fallback; plausible CJK; then charset-normalizer on the
lines with high bytes. Whether the bytes are text at all is decided here too.
"""

from __future__ import annotations

import codecs
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from pensieve_mcp.corpus.types import Unreadable

CHUNK_BYTES = 2**20  # one read; large enough that the loop costs nothing, small enough to hold several
HEAD_BYTES = 2**16  # what the binary sniff and the NUL pattern look at
SAMPLE_BYTES = 2**16  # lines with high bytes given to the detectors
SMALL_BYTES = 4 * 2**20  # up to here a file is held whole, which saves reading it twice

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Formats whose first 64 KB may hold no NUL; the others are found by their NULs.
_MAGIC: Final = (
    b"%PDF-", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a",
    b"BZh9", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"\x7fELF", b"\xd0\xcf\x11\xe0", b"OggS", b"ID3", b"fLaC",
    b"\x28\xb5\x2f\xfd",
)  # fmt: skip
_C0 = bytes(c for c in range(32) if c not in b"\t\n\r\f\x1b") + b"\x7f"
# WHATWG: these labels mean the wider code in practice.
_ALIASES: Final = {
    "iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "l1": "cp1252", "us-ascii": "cp1252",
    "ascii": "cp1252", "ansi": "cp1252", "windows-1252": "cp1252",
    "gb2312": "gb18030", "gbk": "gb18030", "x-gbk": "gb18030",
    "ks_c_5601-1987": "cp949", "euc-kr": "cp949", "ksc5601": "cp949", "shift_jis": "cp932", "shift-jis": "cp932",
    "sjis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932", "iso-8859-9": "cp1254", "iso-8859-11": "cp874",
    "tis-620": "cp874", "utf8": "utf-8", "unicode": "utf-16", "x-mac-roman": "mac_roman", "macintosh": "mac_roman",
    "x-user-defined": "cp1252", "big5": "big5hkscs", "iso-8859-8-i": "iso8859_8", "x-mac-cyrillic": "mac_cyrillic",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Encoding:
    """A guess: Python's codec name, how sure from 0 to 1, and whether the bytes were seen to decode without loss."""

    name: str
    confidence: float
    exact: bool = False
    blank: bool = False  # nothing but white space


@dataclass(frozen=True, slots=True)
class Decoded:
    """A whole text, line ends as `\\n`, control characters removed."""

    text: str
    encoding: str
    confidence: float
    replaced: int


def sniff_binary(head: bytes, *, nul_ok: bool = False) -> str | None:
    """What makes the beginning of a file no text, in words, or None. `nul_ok` for UTF-16/32."""
    for magic in _MAGIC:
        if head.startswith(magic):
            return f"begins like {magic[:5]!r}"
    if nul_ok or not head:
        return None
    body = head.rstrip(b"\0")  # logs may be padded with NULs after a crash
    if b"\0" in body or not body:
        return "holds NUL bytes"
    controls = len(body) - len(body.translate(None, _C0))
    if controls * 10 > len(body):
        return f"{controls * 100 // len(body)} % control characters"
    return None


def nul_pattern(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a byte order mark, by where the NULs stand."""
    if len(head) < 4 or b"\0" not in head:
        return None
    quads = len(head) // 4
    nuls = [head[i : quads * 4 : 4].count(0) for i in range(4)]
    if nuls[2] > quads * 0.9 and nuls[3] > quads * 0.9 and nuls[0] < quads * 0.5:
        return "utf-32-le"
    if nuls[0] > quads * 0.9 and nuls[1] > quads * 0.9 and nuls[3] < quads * 0.5:
        return "utf-32-be"
    pairs = len(head) // 2
    even, odd = head[0 : pairs * 2 : 2].count(0), head[1 : pairs * 2 : 2].count(0)
    # spaces and line ends have a NUL in every script, letters in Latin only
    if odd > max(1, pairs * 0.05) and even <= odd * 0.1 and _holds(head[: pairs * 2], "utf-16-le"):
        return "utf-16-le"
    if even > max(1, pairs * 0.05) and odd <= even * 0.1 and _holds(head[: pairs * 2], "utf-16-be"):
        return "utf-16-be"
    return None


def _holds(data: bytes, codec: str) -> bool:
    """Whether it decodes to something that looks written, not to random code points."""
    text = data.decode(codec, "replace")
    odd = sum(
        1 for c in text if c == "\ufffd" or (c < " " and c not in "\t\n\r\f\x1b") or "\ue000" <= c <= "\uf8ff"
    )
    return odd * 20 <= len(text)


def codec_of(label: str | None) -> str | None:
    """Python's codec for a charset label as the web means it, or None. Never one that is not a text encoding."""
    if not label:
        return None
    name = label.strip().strip("\"'").lower()
    name = _ALIASES.get(name.replace("_", "-"), _ALIASES.get(name, name))
    if not re.fullmatch(r"[a-z0-9._-]{2,40}", name):
        return None
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    if not getattr(info, "_is_text_encoding", True) or info.name in (
        "idna",
        "punycode",
        "undefined",
        "utf-7",
    ):
        return None
    return info.name


def detect(file: BinaryIO, *, declared: str | None = None, fallback: str | None = None) -> Encoding:
    """Read the file from its start to its end, once, and say what it is written in; leaves it at 0.

    Raises Unreadable "binary".
    """
    file.seek(0)
    head = file.read(HEAD_BYTES)
    scan = _Scan()
    early = _by_head(head)
    scan.add(head)
    while chunk := file.read(CHUNK_BYTES):
        scan.add(chunk)
    file.seek(0)
    if early is not None:
        return Encoding(early, 1.0 if early in ("utf-8-sig", "utf-16", "utf-32") else 0.95)
    return scan.verdict(declared, fallback)


def _by_head(head: bytes) -> str | None:
    """An encoding that the first bytes prove, or None. Raises Unreadable "binary"."""
    name = next((codec for bom, codec in _BOMS if head.startswith(bom)), None)
    if name == "utf-16" and not _holds(head[: len(head) // 2 * 2], "utf-16"):
        name = None
    if name is None:
        name = nul_pattern(head)
    why = sniff_binary(head, nul_ok=name is not None and name != "utf-8-sig")
    if why is not None:
        raise Unreadable("binary", why)
    return name


class _Scan:
    """What one pass over the bytes gathers: is it strict UTF-8, is it all controls, which lines have high bytes."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("strict")
        self.is_utf8 = True
        self.is_ascii = True
        self.escapes = b""
        self.size = 0
        self.controls = 0
        self.sample = bytearray()

    def add(self, chunk: bytes) -> None:
        body = chunk.rstrip(b"\0")  # padding, see sniff_binary
        self.size += len(body)
        self.controls += len(body) - len(body.translate(None, _C0))
        if self.is_ascii and chunk.isascii():
            if not self.escapes and b"\x1b" in chunk:
                self.escapes = chunk[max(0, chunk.find(b"\x1b") - 1) :][:SAMPLE_BYTES]
            return
        self.is_ascii = False
        if self.is_utf8:
            try:
                self._utf8.decode(chunk)
            except UnicodeDecodeError:
                self.is_utf8 = False
        room = SAMPLE_BYTES - len(self.sample)
        if room > 0:
            self.sample += _high_lines(chunk, room)

    def verdict(self, declared: str | None, fallback: str | None) -> Encoding:
        if self.size and self.controls * 10 > self.size:
            raise Unreadable("binary", f"{self.controls * 100 // self.size} % control characters")
        if self.is_ascii:
            codec = _iso_2022(self.escapes)
            return Encoding(codec, 0.95) if codec else Encoding("utf-8", 1.0, exact=True)
        if self.is_utf8:
            try:
                self._utf8.decode(b"", True)
            except UnicodeDecodeError:
                if sum(c > "\x7f" for c in self.sample.decode("utf-8", "ignore")) >= 2:
                    return Encoding("utf-8", 0.9)  # cut in its last character
                return guess(bytes(self.sample), declared, fallback)
            return Encoding("utf-8", 1.0, exact=True)
        return guess(bytes(self.sample), declared, fallback)


def _high_lines(chunk: bytes, room: int) -> bytes:
    """Lines that hold bytes above 127, up to `room` bytes; a very long line gives a stretch."""
    lines: list[bytes] = []
    taken = 0
    for line in chunk.splitlines(keepends=True):
        if line.isascii():
            continue
        lines.append(line[: room - taken])
        taken += len(lines[-1])
        if taken >= room:
            break
    return b"".join(lines)


def _iso_2022(sample: bytes) -> str | None:
    for escapes, codec in (
        ((b"\x1b$B", b"\x1b$@", b"\x1b(J"), "iso2022_jp_2"),
        ((b"\x1b$)C",), "iso2022_kr"),
    ):
        if any(e in sample for e in escapes):
            return codec
    return None


def guess(sample: bytes, declared: str | None, fallback: str | None) -> Encoding:
    """An encoding for bytes that are not UTF-8. `sample` are the lines with high bytes."""
    text = sample.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    good = sum(1 for c in text if c > "\x7f") - bad
    if good >= 20 * bad:  # UTF-8 with a few wounds; no other code looks like that by chance
        return Encoding("utf-8", 0.8)
    for label, confidence in ((declared, 0.9), (fallback, 0.9)):
        codec = codec_of(label)
        if codec and codec != "utf-8" and _decodes(sample, codec):
            return Encoding(codec, confidence)
    western = _western(sample)
    if western:
        return Encoding("cp1252", western)
    cjk, cjk_score = _cjk(sample)
    other, other_score = _by_letters(sample)
    if cjk and cjk_score >= other_score:
        return Encoding(cjk, 0.8)
    if other:
        return Encoding(other, 0.7)
    return _by_library(sample)


def _decodes(sample: bytes, codec: str) -> bool:
    """Strictly, but for a character cut at the end of the sample."""
    for end in (None, -1, -2, -3):
        try:
            sample[:end].decode(codec)
        except UnicodeDecodeError:
            continue
        except (LookupError, ValueError):
            return False
        return True
    return False


# Letters beyond ASCII of the languages that are written in Windows-1252; a text in any other code hardly ever
# stays within one of these sets when it is read as Windows-1252.
_TYPOGRAPHY = frozenset("\u00a0«»‹›„“”‚‘’–—…•·°§€£©®™ºª¿¡´²³½¼¾×±µ")
_WESTERN = tuple(
    frozenset(letters + letters.upper()) | _TYPOGRAPHY
    for letters in (
        "àâæçéèêëîïôœùûüÿ", "äöüß", "áéíóúüñ", "ãõáéíóúâêôàçü",
        "åäöæøé", "àèéìíòóùú", "áðéíóúýþæö", "éëïöüáíóú", "àâæçéèêëîïôœùûüÿäöüß")
)  # fmt: skip


# `Pszczo³y`: a sign in the middle of a word is a letter of another code
_SIGN_IN_WORD = re.compile("[A-Za-z][´²³½¼¾×±µ¿¡ªº£¹¶§°©®][A-Za-z]")


def _western(sample: bytes) -> float:
    """How sure the sample is Windows-1252, or 0: its letters belong to one language and stand among ASCII ones."""
    text = sample.decode("cp1252", "replace")
    high = {c for c in text if c > "\x7f"}
    if not any(high <= letters for letters in _WESTERN) or _SIGN_IN_WORD.search(text):
        return 0.0
    letters = lonely = 0
    for i, char in enumerate(text):
        if char > "\x7f" and char.isalpha():
            letters += 1
            around = text[max(0, i - 1) : i] + text[i + 1 : i + 2]
            lonely += not any("a" <= c <= "z" or "A" <= c <= "Z" for c in around)
    if letters and lonely * 2 > letters:
        return 0.0
    return 0.9 if letters else 0.6


_FREQUENT_HANGUL = frozenset(
    "이다는을가의에고지하은로기사한를자들어리나도아시인대서그수일만부전정해라니주과보으제와스상구여장것게면원"
    "안었비성조있년모위경국동관방오분생세진우말유공신소적마무학려내중문개요선간화영할거무물저때년없더너"
)
_FREQUENT_HAN = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里"
    "用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实"
    "這個們來為國說時會對過發後裡經麼學現當沒動還進樣開從實"
    "日本人年大会国出中上生者社自前時間後見行月今何家内"
)


def _cjk(sample: bytes) -> tuple[str | None, float]:
    """A multi-byte East Asian code, when one decodes strictly and reads better than the rest."""
    high = sum(1 for b in sample if b > 127)
    if high < 6:
        return None, 0.0
    best, best_score = None, 0.0
    for codec in ("cp932", "euc_jp", "gb18030", "big5", "cp949"):
        if not _decodes(sample, codec):
            continue
        text = sample.decode(codec, "ignore")
        wide = [c for c in text if c > "\x7f"]
        if not wide:
            continue
        score = sum(map(_plausible, wide)) / len(wide)
        if codec in ("gb18030", "big5", "cp949", "euc_jp"):
            lead = sum(1 for b in sample if 0xA1 <= b <= 0xFE) / high
            score *= 0.7 + 0.3 * lead
        if score > best_score:
            best, best_score = codec, score
    if best is None or best_score < 0.35:
        return None, 0.0
    if best == "gb18030" and _decodes(sample, "gbk"):
        best = "gbk"
    elif best == "cp949" and _decodes(sample, "euc_kr"):
        best = "euc_kr"
    return best, best_score


def _plausible(char: str) -> float:
    if "\u3041" <= char <= "\u30fe":
        return 1.2  # kana
    if char in _FREQUENT_HAN:
        return 1.0
    if "\uac00" <= char <= "\ud7a3":
        return 1.0 if char in _FREQUENT_HANGUL else 0.4
    if "\u4e00" <= char <= "\u9fff":
        return 0.45
    if "\u3000" <= char <= "\u303f" or "\uff01" <= char <= "\uff5e":
        return 0.8  # punctuation
    if "\uff61" <= char <= "\uff9f":
        return -0.2  # half-width kana: nearly always another code read as Shift-JIS
    return -0.5


_ALPHABETS: Final = (
    (
        "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґўђљњћџјѓќ", "оеаинтсрвл",
        ("cp1251", "koi8_u", "cp866", "iso8859_5", "mac_cyrillic")),
    ("αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώϊϋΐΰ", "αοιετσνηυρ", ("cp1253", "iso8859_7")),
    ("אבגדהוזחטיךכלםמןנסעףפץצקרשת", "יוהלאמרתבש", ("cp1255", "iso8859_8", "cp862")),
)  # fmt: skip


def _likely(char: str, frequent: frozenset[str], known: frozenset[str]) -> float:
    if char in frequent:
        return 1.0
    return 0.55 if char.lower() in known else 0.2 if char in _TYPOGRAPHY else -1.0


_MIXED = re.compile(r"(?<=[A-Za-z])[^\W\d_a-zA-Z]|[^\W\d_a-zA-Z](?=[A-Za-z])")


def _by_letters(sample: bytes) -> tuple[str | None, float]:
    """Cyrillic, Greek or Hebrew by how common the letters are that a code makes of the bytes."""
    best, best_score = None, 0.0
    for letters, common, codecs_ in _ALPHABETS:
        known, frequent = frozenset(letters), frozenset(common)
        for codec in codecs_:
            text = sample.decode(codec, "replace")
            high = [c for c in text if c > "\x7f"]
            if len(high) < 8:
                continue
            mixed = len(_MIXED.findall(text))
            if mixed * 5 > len(high):
                continue  # these scripts do not share words with Latin letters
            # a capital inside a word is what a wrong Cyrillic code makes of small letters
            inner = len(re.findall(r"(?<=[^\W\d_a-z])[^\W\d_a-zA-Z]", text)) or 1
            shouting = sum(1 for a, b in itertools.pairwise(text) if a.islower() and b.isupper()) / inner
            score = sum(_likely(c, frequent, known) for c in high) / len(high) - shouting
            if score > best_score:
                best, best_score = codec, score
    if best is None or best_score < 0.6:
        return None, 0.0
    if best == "koi8_u" and not _has_ukrainian(sample):
        best = "koi8_r"
    return best, best_score


def _has_ukrainian(sample: bytes) -> bool:
    return any(c in "іїєґІЇЄҐ" for c in sample.decode("koi8_u", "replace"))


def _by_library(sample: bytes) -> Encoding:
    from charset_normalizer import from_bytes

    best = from_bytes(sample, steps=5, chunk_size=512).best()
    if best is None or best.encoding in ("ascii", "utf_8"):
        return Encoding("cp1252", 0.2)
    name = codec_of(best.encoding.replace("_", "-")) or codec_of(best.encoding) or "cp1252"
    if name in ("iso8859-1", "iso8859-15", "latin-1"):
        name = "cp1252"
    return Encoding(name, round(max(0.0, min(0.9, 1.0 - best.chaos)), 2))


_ANSI = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-B])")
_SPACING = re.compile("[\x0b\x0c\x85]")  # they part words, so a space takes their place; they end no line
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_DELETE = bytes(c for c in (*range(9), *range(14, 32), 127))


def clean(text: str) -> str:
    """Text as `T` wants it: terminal colours and control characters out, lone surrogates as U+FFFD. Keeps `\\r`."""
    if text.isascii():
        if text.isprintable():
            return text
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        plain = text.encode("ascii")
        if len(plain.translate(None, _DELETE)) != len(plain):
            text = plain.translate(None, _DELETE).decode("ascii")
        return text.replace("\x0b", " ").replace("\x0c", " ") if "\x0b" in text or "\x0c" in text else text
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if _SPACING.search(text):
        text = _SPACING.sub(" ", text)
    if _CONTROL.search(text):
        text = _CONTROL.sub("", text)
    return _SURROGATE.sub("\ufffd", text) if _SURROGATE.search(text) else text


class TextStream:
    """A file's text in stretches of about a megabyte, decoded as it is read: constant memory for any size.

    After the last stretch `replaced` counts the characters lost. `blank` is known before reading begins only
    for small files; iterate to find out.
    """

    def __init__(self, file: BinaryIO, *, declared: str | None = None, fallback: str | None = None) -> None:
        self._file = file
        file.seek(0)
        self._whole: bytes | None = file.read(SMALL_BYTES + 1)
        if len(self._whole) > SMALL_BYTES:
            self._whole = None
            self.encoding = detect(file, declared=declared, fallback=fallback)
        else:
            self.encoding = detect_bytes(self._whole, declared=declared, fallback=fallback)
        self.replaced = 0

    def __iter__(self) -> Iterator[str]:
        name = self.encoding.name
        exact = self.encoding.exact
        try:
            decoder = codecs.getincrementaldecoder(name)("replace")
        except LookupError:  # a stateful codec without one
            decoder = codecs.getincrementaldecoder("cp1252")("replace")
        newlines = io.IncrementalNewlineDecoder(None, translate=True)
        for chunk, last in self._chunks():
            text = decoder.decode(chunk, last)
            if not exact:
                self.replaced += text.count("\ufffd")
            text = clean(newlines.decode(text, last))
            if text:
                yield text

    def _chunks(self) -> Iterator[tuple[bytes, bool]]:
        if self._whole is not None:
            yield self._whole, True
            return
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            yield chunk, False
        yield b"", True


def detect_bytes(data: bytes, *, declared: str | None = None, fallback: str | None = None) -> Encoding:
    """`detect` for bytes in memory."""
    if data.isascii() and b"\x1b" not in data and b"\0" not in data:
        why = sniff_binary(data[:HEAD_BYTES])
        if why is not None:
            raise Unreadable("binary", why)
        return Encoding("utf-8", 1.0, exact=True)
    return detect(io.BytesIO(data), declared=declared, fallback=fallback)


def decode(data: bytes, *, declared: str | None = None, fallback: str | None = None) -> Decoded:
    """Decode bytes in memory. Raises Unreadable "binary"."""
    stream = TextStream(io.BytesIO(data), declared=declared, fallback=fallback)
    text = "".join(stream)
    return Decoded(text, stream.encoding.name, stream.encoding.confidence, stream.replaced)


def decode_declared(data: bytes, declared: str | None) -> str:
    """A part of a mail or archive whose charset is written beside it; never raises, keeps `\\r` out."""
    try:
        return decode(data, declared=declared).text
    except Unreadable:
        text = data.decode(codec_of(declared) or "cp1252", "replace")
        return clean(text.replace("\r\n", "\n").replace("\r", "\n"))
