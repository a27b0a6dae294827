"""Makes our static table: one row of 384 numbers per word piece, so that the mean of a text's rows lies near
the vector all-MiniLM-L6-v2 gives the text.

Stages, each resumable and each a subcommand:
  teach   runs MiniLM (Apache-2.0 weights, a folder with model.safetensors and tokenizer.json) over every
          vocabulary item alone and over the texts of static_table_texts.py
  fit     starts rows at the vocabulary's own vectors, then fits rows and a bias to the texts' vectors
  ship    quantises to int8 with one scale for the table and writes `static_table.npy` and its json

The fit is the one of our measurements (retrieval facts, section 5): Adam, token dropout 0.3, cosine loss plus a
small contrastive part that keeps neighbours apart. The bias is folded into the rows, since the mean of (row + bias)
is the mean of the rows plus the bias; so any reader that averages rows, sentence-transformers' StaticEmbedding
included, reads the same vectors. Needs torch, which the package itself does not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

LAYERS, HEADS, WIDTH = 6, 12, 384
MAX_PIECES = 256
BATCH_PIECES = 4_096  # small enough to stay in cache
CHECKPOINT_TEXTS = 4_096


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


class Teacher:
    """MiniLM in plain torch. bfloat16 where the processor has it: 0.9997 cosine to float32, twice as fast."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.weights: dict[str, Any] = {
            k: v.to(dtype) if v.is_floating_point() else v
            for k, v in load_file(folder / "model.safetensors").items()
        }
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_PIECES)

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 1e-12)

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(texts, pieces) ids and booleans to (texts, 384) float32, unit length."""
        w, e = self.weights, "embeddings"
        x = w[f"{e}.word_embeddings.weight"][ids] + w[f"{e}.position_embeddings.weight"][: ids.shape[1]]
        x = self.norm(f"{e}.LayerNorm", x + w[f"{e}.token_type_embeddings.weight"][0])
        for layer in range(LAYERS):
            a = f"encoder.layer.{layer}"
            q, k, v = (
                self.linear(f"{a}.attention.self.{part}", x).unflatten(2, (HEADS, -1)).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
            seen = self.linear(f"{a}.attention.output.dense", seen.transpose(1, 2).flatten(2))
            x = self.norm(f"{a}.attention.output.LayerNorm", x + seen)
            wide = F.gelu(self.linear(f"{a}.intermediate.dense", x))
            x = self.norm(f"{a}.output.LayerNorm", x + self.linear(f"{a}.output.dense", wide))
        kept = mask.unsqueeze(2).float()
        return F.normalize((x.float() * kept).sum(1) / kept.sum(1), dim=1)

    def batches(self, pieces: list[list[int]]) -> np.ndarray:
        """Vectors of texts given as ids with [CLS] and [SEP], in the order given."""
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
        out = np.zeros((len(pieces), WIDTH), np.float32)
        start = 0
        while start < len(order):
            stop, longest = start, 1
            while (
                stop < len(order)
                and (stop + 1 - start) * max(longest, len(pieces[order[stop]])) <= BATCH_PIECES
            ):
                longest = len(pieces[order[stop]])
                stop += 1
            rows = order[start:stop]
            ids = torch.zeros((len(rows), longest), dtype=torch.long)
            mask = torch.zeros((len(rows), longest), dtype=torch.bool)
            for r, i in enumerate(rows):
                ids[r, : len(pieces[i])] = torch.tensor(pieces[i])
                mask[r, : len(pieces[i])] = True
            out[rows] = self.encode(ids, mask).numpy()
            start = stop
        return out


def teach(args: argparse.Namespace) -> None:
    teacher = Teacher(args.model, torch.bfloat16 if args.bfloat16 else torch.float32)
    args.work.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        alone = args.work / "vocabulary.npy"
        if not alone.exists():
            cls, sep = teacher.tokenizer.token_to_id("[CLS]"), teacher.tokenizer.token_to_id("[SEP]")
            np.save(
                alone, teacher.batches([[cls, i, sep] for i in range(teacher.tokenizer.get_vocab_size())])
            )
            say("vocabulary done")
        texts = [json.loads(line) for line in args.texts.read_text(encoding="utf-8").splitlines()]
        for start in range(0, len(texts), CHECKPOINT_TEXTS):
            part = args.work / f"texts-{start:06d}.npy"
            if not part.exists():
                chosen = texts[start : start + CHECKPOINT_TEXTS]
                vectors = teacher.batches([e.ids for e in teacher.tokenizer.encode_batch(chosen)])
                with part.with_suffix(".tmp").open("wb") as out:
                    np.save(out, vectors.astype(np.float16))
                part.with_suffix(".tmp").rename(part)
                say(f"{start + len(chosen)} of {len(texts)} texts, {time.process_time():.0f} CPU s")


def first_rows(alone: np.ndarray) -> np.ndarray:
    """Vectors of the items alone, centred, weighted by the logarithm of the rank: common words say little."""
    rank = np.log1p(np.maximum(np.arange(len(alone)) - 1_995, 1))
    rows = alone - alone.mean(0)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True) * rank[:, None] / 8, np.float32)


def fit(args: argparse.Namespace) -> None:
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    parts = sorted(args.work.glob("texts-*.npy"))
    targets = torch.tensor(np.concatenate([np.load(p) for p in parts]).astype(np.float32))
    texts = [json.loads(line) for line in args.texts.read_text(encoding="utf-8").splitlines()][: len(targets)]
    encoded = [np.array(e.ids) for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    usable = np.array([i for i, ids in enumerate(encoded) if len(ids)])
    held, train = usable[::25], np.setdiff1d(usable, usable[::25])
    start_rows = torch.tensor(first_rows(np.load(args.work / "vocabulary.npy")))
    bag = torch.nn.EmbeddingBag.from_pretrained(start_rows.clone(), freeze=False, mode="mean")
    bias = torch.nn.Parameter(torch.zeros(WIDTH))
    optimizer = torch.optim.Adam(
        [{"params": bag.parameters(), "lr": args.rate}, {"params": [bias], "lr": 1e-2}]
    )
    steps = args.epochs * (len(train) // args.batch + 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.05, 1 - step / steps))

    def predict(indices: np.ndarray, drop: float) -> torch.Tensor:
        bags = []
        for i in indices:
            ids = encoded[i]
            kept = ids[rng.random(len(ids)) >= drop] if drop else ids
            bags.append(kept if len(kept) else ids)
        offsets = np.cumsum([0] + [len(ids) for ids in bags[:-1]])
        return F.normalize(bag(torch.tensor(np.concatenate(bags)), torch.tensor(offsets)) + bias, dim=1)

    for epoch in range(args.epochs):
        rng.shuffle(train)
        for start in range(0, len(train), args.batch):
            chosen = train[start : start + args.batch]
            optimizer.zero_grad()
            predicted, target = predict(chosen, args.dropout), targets[chosen]
            loss = (1 - (predicted * target).sum(1)).mean()
            loss = loss + 0.1 * F.cross_entropy(predicted @ target.T * 20, torch.arange(len(chosen)))
            loss.backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            cosine = float((predict(held, 0.0) * targets[held]).sum(1).mean())
        say(f"epoch {epoch}: held-out cosine {cosine:.4f}, {time.process_time():.0f} CPU s")
        np.savez(
            args.work / "fitted.npz",
            rows=bag.weight.detach().numpy(),
            bias=bias.detach().numpy(),
            cosine=cosine,
        )


def ship(args: argparse.Namespace) -> None:
    fitted = np.load(args.work / "fitted.npz")
    rows = fitted["rows"] + fitted["bias"]
    # One scale for all: a mean over pieces sums integers, and a short row has little to say anyhow. The few
    # values beyond the 99.99th percentile are cut, for a finer step.
    scale = float(np.quantile(np.abs(rows), 0.9999)) / 127
    table = np.clip(np.round(rows / scale), -127, 127).astype(np.int8)
    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "static_table.npy", table)
    digest = hashlib.sha256((args.out / "static_table.npy").read_bytes()).hexdigest()
    about = {
        "scale": scale,
        "sha256": digest,
        "rows": len(table),
        "dim": WIDTH,
        "space": "all-MiniLM-L6-v2",
        "texts": int(sum(len(np.load(p, mmap_mode="r")) for p in args.work.glob("texts-*.npy"))),
        "held_out_cosine": round(float(fitted["cosine"]), 4),
    }
    (args.out / "static_table.json").write_text(json.dumps(about, indent=1) + "\n")
    say(json.dumps(about))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("teach", "fit", "ship"))
    parser.add_argument(
        "--model", type=Path, required=True, help="folder with model.safetensors, tokenizer.json"
    )
    parser.add_argument("--texts", type=Path, help="lines of JSON strings, from static_table_texts.py")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--out", type=Path, help="for ship: pensieve_mcp/index/data")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"teach": teach, "fit": fit, "ship": ship}[args.stage](args)


if __name__ == "__main__":
    main()
