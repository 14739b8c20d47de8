"""Compares what folders hold with what PyTorch's modules make of them.

Called by test_recurrent_file.c:  PARENT, a folder of such folders
"""
import json
import os
import sys

# Comparing rests on no speed, and threads that wait for each other crawl on a busy machine.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors.torch import load_file
from torch import nn

END = 2


class Translator(nn.Module):
    """As recurrent_translator.h says it, one sentence at a time, one step at a time."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.lstm = config["cell"] == "lstm"
        cell = nn.LSTM if self.lstm else nn.GRU
        width, embedding = config["decoder_hidden_size"], config["embedding_size"]
        source = config["encoder_hidden_size"] * (2 if config["bidirectional"] else 1)
        entering = source if config["context"] == "input" else 0
        states = config["decoder_layers"] * (2 if self.lstm else 1)
        self.embedding = nn.Embedding(config["vocab_size"], embedding)
        self.encoder = cell(embedding, config["encoder_hidden_size"], config["encoder_layers"],
                            bidirectional=config["bidirectional"])
        self.bridge = nn.Linear(source, states * width)
        self.decoder = cell(embedding + entering, width, config["decoder_layers"])
        if config["attention"] in ("additive", "general"):
            self.attention = nn.Module()
        if config["attention"] == "additive":
            self.attention.query = nn.Linear(width, config["attention_size"])
            self.attention.key = nn.Linear(source, config["attention_size"], bias=False)
            self.attention.score = nn.Linear(config["attention_size"], 1, bias=False)
        elif config["attention"] == "general":
            self.attention.query = nn.Linear(width, source, bias=False)
        self.merge = nn.Linear(width + source, embedding)
        self.output = nn.Linear(embedding, config["vocab_size"])

    def embed(self, ids):
        return self.embedding(torch.tensor(ids)) * self.config["embedding_size"] ** 0.5

    def read(self, source):
        encoded, last = self.encoder(self.embed(source))
        state = last[0] if self.lstm else last
        summary = torch.cat([state[-2], state[-1]]) if self.config["bidirectional"] else state[-1]
        start = torch.tanh(self.bridge(summary)).reshape(-1, self.config["decoder_hidden_size"])
        layers = self.config["decoder_layers"]
        return encoded, summary, (start[:layers], start[layers:]) if self.lstm else start

    def context(self, encoded, summary, state):
        kind = self.config["attention"]
        if kind == "none":
            return summary
        if kind == "additive":
            scores = self.attention.score(
                torch.tanh(self.attention.query(state) + self.attention.key(encoded)))[:, 0]
        elif kind == "general":
            scores = encoded @ self.attention.query(state)
        else:
            scores = encoded @ state
            if kind == "scaled_dot":
                scores = scores / encoded.shape[1] ** 0.5
        return torch.softmax(scores, 0) @ encoded

    def step(self, token, encoded, summary, before):
        x = self.embed([token])
        if self.config["context"] == "input":
            top = (before[0] if self.lstm else before)[-1]
            context = self.context(encoded, summary, top)
            x = torch.cat([x[0], context])[None]
        y, after = self.decoder(x, before)
        if self.config["context"] == "output":
            context = self.context(encoded, summary, y[0])
        return self.output(torch.tanh(self.merge(torch.cat([y[0], context])))), after


def open_model(folder):
    config = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))
    tensors = {name: tensor.float()
               for name, tensor in load_file(os.path.join(folder, "model.safetensors")).items()}
    assert ("output.weight" in tensors) == (not config["tie_word_embeddings"])
    tensors.setdefault("output.weight", tensors["embedding.weight"])
    model = Translator(config).eval()
    model.load_state_dict(tensors, strict=True)
    return model


def rows(packed, starts):
    return [packed[a:b].tolist() for a, b in zip(starts[:-1], starts[1:])]


def compare_logits(model, source, target, ours):
    encoded, summary, state = model.read(source)
    largest = 0.0
    for token, row in zip(target, ours):
        logits, state = model.step(token, encoded, summary, state)
        largest = max(largest, (logits - torch.tensor(row)).abs().max().item())
    return largest


def greedy(model, source, most):
    encoded, summary, state = model.read(source)
    written, token = [], END
    while len(written) < min(2 * len(source) + 10, most):
        logits, state = model.step(token, encoded, summary, state)
        logits[[0, 1, 3]] = -torch.inf
        token = logits.argmax().item()
        written.append(token)
        if token == END:
            break
    return written


def check(folder):
    model = open_model(folder)
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    sources = rows(expected["source"], expected["source_starts"].tolist())
    starts = expected["target_starts"].tolist()
    targets = rows(expected["target_in"], starts)
    largest = 0.0
    for source, target, logits in zip(sources, targets, rows(expected["logits"], starts)):
        largest = max(largest, compare_logits(model, source, target, logits))
    assert largest < 2e-5, f"logits differ by {largest}"
    for source, row in zip(sources, expected["greedy"].tolist()):
        ours = [token for token in row if token >= 0]
        theirs = greedy(model, source, len(row))
        assert theirs == ours, f"PyTorch {theirs}, here {ours}"
    return largest


with torch.no_grad():
    names = sorted(os.listdir(sys.argv[1]), key=int)
    largest = max(check(os.path.join(sys.argv[1], name)) for name in names)
print(f"logits of {len(names)} models differ by {largest:.1e} at most")
