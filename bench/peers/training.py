"""A training step in PyTorch, to be held against ours: the causal decoder of src/train/step.h
and the translator of recipes/translate-en-fr.json, each the way a careful user writes it:
scaled_dot_product_attention, one product for query, key and value, the loss on real tokens only,
fused AdamW, gradients set to None.

    python training.py decoder --attn build/src/cli/attn
    python training.py translator --attn build/src/cli/attn --data FOLDER

Ours and theirs take turns, each on its own process threads while the other rests; PyTorch runs
eagerly and compiled (the translator's shapes change with every batch, so it is compiled for any
shape).  `plain` is a decoder of GPT-2's layers, for whose norms and activation PyTorch has fused
kernels; ours has no such model.  Prints one JSON object: target tokens a second, the best round
of each.

PyTorch allocates the memory of a step anew, and fresh pages cost a virtual machine much; with
GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592
glibc keeps it.
"""
import argparse
import json
import lzma
import math
import os
import subprocess
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
PAD, END = 1, 2


def heads_of(x, heads):
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


# ---- The causal decoder ----------------------------------------------------------------


class DecoderLayer(nn.Module):
    """Llama's layer: RMSNorm, rotary, SwiGLU, no biases."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads, self.inner = heads, inner
        self.attention_norm = nn.RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.feed_norm = nn.RMSNorm(width, eps=1e-6)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    @staticmethod
    def rotated(x, cosine, sine):
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    def forward(self, x, cosine, sine):
        q, k, v = (heads_of(part, self.heads)
                   for part in self.qkv(self.attention_norm(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(
            self.rotated(q, cosine, sine), self.rotated(k, cosine, sine), v, is_causal=True)
        x = x + self.out(joined(attended))
        gate, up = self.gate_up(self.feed_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class PlainLayer(nn.Module):
    """GPT-2's layer: LayerNorm, GELU, biases; kernels that PyTorch has fused."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, cosine, sine):
        q, k, v = (heads_of(part, self.heads)
                   for part in self.qkv(self.attention_norm(x)).chunk(3, dim=-1))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return x + self.down(F.gelu(self.up(self.feed_norm(x))))


class Decoder(nn.Module):
    def __init__(self, plain, layers=6, width=256, heads=4, length=256, vocabulary=8000):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.plain = plain
        if plain:
            self.positions = nn.Embedding(length, width)
            self.layers = nn.ModuleList(PlainLayer(width, heads, 4 * width)
                                        for _ in range(layers))
            self.norm = nn.LayerNorm(width)
        else:
            self.layers = nn.ModuleList(DecoderLayer(width, heads, 688) for _ in range(layers))
            self.norm = nn.RMSNorm(width, eps=1e-6)
        size = width // heads
        angles = torch.outer(torch.arange(length),
                             10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cosine", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sine", torch.cat((angles, angles), -1).sin())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        if self.plain:
            x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        # The output is tied to the embedding.
        logits = F.linear(self.norm(x).flatten(0, 1), self.embedding.weight)
        return F.cross_entropy(logits, targets.flatten())


class DecoderTraining:
    def __init__(self, plain, batch=16, length=256, vocabulary=8000):
        self.model = Decoder(plain)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=3e-4,
                                           betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.ids = torch.randint(vocabulary, (batch, length + 1))
        self.run = self.model

    def step(self):
        loss = self.run(self.ids[:, :-1], self.ids[:, 1:])
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return self.ids.numel() - self.ids.shape[0]


# ---- The translator --------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width, heads, crosses):
        super().__init__()
        self.heads, self.crosses = heads, crosses
        self.enter = nn.Linear(width, width if crosses else 3 * width)
        self.memory = nn.Linear(width, 2 * width) if crosses else None
        self.out = nn.Linear(width, width)

    def forward(self, x, memory, keep, is_causal):
        if self.crosses:
            parts = (self.enter(x), *self.memory(memory).chunk(2, dim=-1))
        else:
            parts = self.enter(x).chunk(3, dim=-1)
        q, k, v = (heads_of(part, self.heads) for part in parts)
        return self.out(joined(F.scaled_dot_product_attention(
            q, k, v, attn_mask=keep, is_causal=is_causal)))


class TranslatorLayer(nn.Module):
    """Normalising first, as the recipe has it."""

    def __init__(self, width, heads, inner, dropout, decodes):
        super().__init__()
        self.self_norm, self.self_attention = nn.LayerNorm(width), Attention(width, heads, False)
        self.decodes = decodes
        if decodes:
            self.cross_norm = nn.LayerNorm(width)
            self.cross_attention = Attention(width, heads, True)
        self.feed_norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = dropout

    def dropped(self, x):
        return F.dropout(x, self.dropout, self.training)

    def forward(self, x, keep, memory=None):
        # Padding stands at the end, so a causal query never sees it.
        x = x + self.dropped(self.self_attention(
            self.self_norm(x), None, None if self.decodes else keep, self.decodes))
        if self.decodes:
            x = x + self.dropped(self.cross_attention(self.cross_norm(x), memory, keep, False))
        return x + self.dropped(self.down(F.relu(self.up(self.feed_norm(x)))))


class Translator(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        sizes, width = recipe["model"], recipe["model"]["width"]
        self.dropout, self.smoothing = sizes["dropout"], recipe["training"]["label_smoothing"]
        self.embedding = nn.Embedding(recipe["tokenizer"]["vocabulary"], width)
        nn.init.normal_(self.embedding.weight, std=width ** -0.5)
        arguments = (width, sizes["heads"], sizes["inner"], sizes["dropout"])
        self.encoder = nn.ModuleList(TranslatorLayer(*arguments, False)
                                     for _ in range(sizes["encoder_layers"]))
        self.decoder = nn.ModuleList(TranslatorLayer(*arguments, True)
                                     for _ in range(sizes["decoder_layers"]))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        half = width // 2
        angles = torch.outer(torch.arange(sizes["max_positions"] + 2),
                             torch.exp(-math.log(10000) / (half - 1) * torch.arange(half)))
        self.register_buffer("positions", torch.cat((angles.sin(), angles.cos()), -1))

    def embed(self, ids):
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return F.dropout(x + self.positions[2:2 + ids.shape[1]], self.dropout, self.training)

    def forward(self, source, target_in, target_out):
        keep = (source != PAD)[:, None, None, :]
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, keep)
        memory, x = self.encoder_norm(x), self.embed(target_in)
        for layer in self.decoder:
            x = layer(x, keep, memory)
        counts = target_out != PAD
        logits = F.linear(self.decoder_norm(x)[counts], self.embedding.weight)
        return F.cross_entropy(logits, target_out[counts], label_smoothing=self.smoothing)


def padded(sequences):
    return nn.utils.rnn.pad_sequence([torch.tensor(s) for s in sequences], True, PAD)


class TranslatorTraining:
    """Pairs sorted by length, so that little is padded, cut by target tokens, shuffled."""

    def __init__(self, data, pairs):
        from tokenizers import Tokenizer
        recipe = json.loads((ROOT / "recipes/translate-en-fr.json").read_text())
        tokenizer = Tokenizer.from_file(str(ROOT / "models/translate-en-fr/tokenizer.json"))
        with lzma.open(data, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t")[:2] for line, _ in zip(file, range(pairs))]
        sides = [[encoding.ids[:-1] if encoding.ids[-1] == END else encoding.ids
                  for encoding in tokenizer.encode_batch([line[side] for line in lines])]
                 for side in (0, 1)]
        sides = [[[t for t in ids if t > END] + [END] for ids in side] for side in sides]
        ordered = sorted(zip(*sides), key=lambda pair: (len(pair[1]), len(pair[0])))
        options = recipe["training"]
        self.batches, rows, tokens = [], [], 0
        for pair in ordered:
            rows.append(pair)
            tokens += len(pair[1])
            if tokens >= options["tokens_per_batch"]:
                self.batches.append(self.batch(rows))
                rows, tokens = [], 0
        order = torch.randperm(len(self.batches)).tolist()
        self.batches = [self.batches[n] for n in order]
        self.model = Translator(recipe)
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(options["beta1"], options["beta2"]),
            eps=options["epsilon"], weight_decay=options["weight_decay"], fused=True)
        self.average = [p.detach().clone() for p in self.model.parameters()]
        self.follow = 1 - options["average"]
        self.run, self.done = self.model, 0

    @staticmethod
    def batch(rows):
        source, target = padded([r[0] for r in rows]), padded([r[1] for r in rows])
        target_in = torch.cat((torch.full((len(rows), 1), END), target[:, :-1]), 1)
        return source, target_in, target, int((target != PAD).sum())

    def step(self):
        *batch, tokens = self.batches[self.done % len(self.batches)]
        self.done += 1
        loss = self.run(*batch)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, list(self.model.parameters()), self.follow)
        return tokens


def create(kind, data, pairs=20000):
    torch.manual_seed(1)
    return TranslatorTraining(data, pairs) if kind == "translator" \
        else DecoderTraining(kind == "plain")


# ---- Turns -----------------------------------------------------------------------------


class Theirs:
    def __init__(self, name, kind, data, compiles):
        self.name, self.training = name, create(kind, data)
        if compiles:
            self.training.run = torch.compile(self.training.model,
                                              dynamic=kind == "translator")
        self.rate(60 if compiles and kind == "translator" else 0)

    def rate(self, seconds):
        """Target tokens a second, after a step that wakes the threads."""
        self.training.step()
        tokens, start = 0, time.perf_counter()
        while not tokens or time.perf_counter() - start < seconds:
            tokens += self.training.step()
        return tokens / (time.perf_counter() - start)


class OurDecoder:
    name = "libattn"

    def __init__(self, attn, threads):
        self.command = [attn, "bench", "--op", "training", "--json", "--threads", str(threads)]

    def rate(self, seconds):
        output = subprocess.run([*self.command, "--seconds", str(seconds)], check=True,
                                capture_output=True).stdout
        row = json.loads(output)["rows"][0]
        return row["B"] * row["Lq"] / row["milliseconds"] * 1000


class OurTranslator:
    """By the log of `attn train`, which has a line every ten seconds, between the first line
    and the last: without reading the data and the first step, whose memory is new."""
    name = "libattn"

    def __init__(self, attn, threads, data):
        self.folder = tempfile.TemporaryDirectory()
        self.steps, self.pace = 2, 1.4  # steps a second
        self.command = [attn, "train", str(ROOT / "recipes/translate-en-fr.json"), "--out",
                        self.folder.name, "--threads", str(threads)]
        self.environment = dict(os.environ, ATTN_DATA=str(data))
        self.train()

    def train(self):
        subprocess.run([*self.command, "--max-steps", str(self.steps)], check=True,
                       env=self.environment, capture_output=True)

    def rate(self, seconds):
        log = Path(self.folder.name) / "log.jsonl"
        lines = []
        while len(lines) < 3:  # one in ten seconds
            before = len(log.read_text().splitlines())
            self.steps += int(max(seconds, 30) * self.pace)
            self.train()
            lines = [json.loads(line) for line in log.read_text().splitlines()[before:]]
            self.pace *= 2 if len(lines) < 3 else 1
        first, last = lines[0], lines[-1]
        return (last["target_tokens"] - first["target_tokens"]) / \
            (last["seconds"] - first["seconds"])


def contenders(options):
    file = options.data and Path(options.data) / "translate/tatoeba-en-fr.train.tsv.xz"
    them = [Theirs("PyTorch, eager", options.kind, file, False),
            Theirs("PyTorch, compiled", options.kind, file, True)]
    if options.attn and options.kind == "decoder":
        them.append(OurDecoder(options.attn, options.threads))
    if options.attn and options.kind == "translator":
        them.append(OurTranslator(options.attn, options.threads, options.data))
    return them


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("decoder", "plain", "translator"))
    parser.add_argument("--attn", help="the command, built; without it PyTorch alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", help="the folder that ATTN_DATA names")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    them = contenders(options)
    rates = {one.name: [] for one in them}
    for _ in range(options.rounds):
        for one in them:
            rates[one.name].append(round(one.rate(options.seconds)))
    print(json.dumps({
        "torch": torch.__version__, "kind": options.kind, "threads": options.threads,
        "parameters": sum(p.numel() for p in them[0].training.model.parameters()),
        "tokens_per_second": {name: max(list_) for name, list_ in rates.items()},
        "rounds": rates}))


if __name__ == "__main__":
    main()
