"""Computes a reader's logits with PyTorch's layers from its folder, and compares.

Called by test_reader_file.c:  FOLDER,FOLDER,…
"""
import json
import os
import sys

# Comparing rests on no speed, and threads that wait for each other crawl on a busy machine.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors.torch import load_file
from torch.nn import functional

EOS = 2


def bucket(left, right, config):
    """The row of a pair: FNV-1a of both ids."""
    value = 0xCBF29CE484222325
    for token in (left, right):
        value = (value ^ token) * 0x100000001B3 % 2**64
    value ^= value >> 32
    return config["vocab_size"] + value % config["buckets"]


def body(ids, config, weights):
    """States of the tokens, and the last ones of a recurrent body."""
    rows = list(ids)
    if config["buckets"]:
        rows += [bucket(a, b, config) for a, b in zip(ids, ids[1:])]
    x = weights["embeddings.word_embeddings.weight"][rows]
    if config["body"] == "bag":
        return x, None
    if config["body"] == "convolution":
        channels = []
        for i, taps in enumerate(config["filters"]):
            name = f"encoder.convolutions.{i}."
            kernel = weights[name + "weight"].unflatten(1, (taps, -1)).transpose(1, 2)
            padded = functional.pad(x.T, (taps // 2, taps - 1 - taps // 2))
            channels.append(functional.conv1d(padded[None], kernel, weights[name + "bias"])[0].T)
        return torch.relu(torch.cat(channels, 1)), None
    cell = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[config["body"]]
    layer = cell(config["embedding_size"], config["hidden_size"], config["num_hidden_layers"],
                 bidirectional=config["bidirectional"])
    layer.load_state_dict({name[8:]: tensor for name, tensor in weights.items()
                           if name.startswith("encoder.")})
    states, last = layer(x)
    last = last[0] if config["body"] == "lstm" else last
    ways = 2 if config["bidirectional"] else 1
    return states, last[-ways:].flatten()


def linear(name, x, weights):
    return functional.linear(x, weights[name + ".weight"], weights[name + ".bias"])


def label_text(ids, config, weights):
    x, last = body(ids + [EOS], config, weights)
    if config["pooling"] == "last":
        return last
    if config["pooling"] == "mean":
        return x.mean(0)
    if config["pooling"] == "max":
        return x.max(0).values
    scores = torch.tanh(linear("attention.key_proj", x, weights)) @ weights["attention.vector"][0]
    return torch.softmax(scores, 0) @ x


def label_words(ids, words, config, weights):
    x, _ = body(ids, config, weights)
    pieces = x.split(words)
    x = torch.stack([p.mean(0) if config["word_state"] == "mean" else p[0] for p in pieces])
    if config["attention"] == "none":
        return x
    query, key = (linear(f"attention.{name}_proj", x, weights) for name in ("query", "key"))
    if config["attention"] == "dot":
        scores = query @ key.T / key.shape[1] ** 0.5
    else:
        scores = torch.tanh(query[:, None] + key[None]) @ weights["attention.vector"][0]
    return torch.cat([x, torch.softmax(scores, 1) @ x], 1)


def check(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    weights = load_file(os.path.join(folder, "model.safetensors"))
    case = load_file(os.path.join(folder, "case.safetensors"))
    rows, words = [], case["words"].tolist() if "words" in case else []
    for text in case["ids"].split(case["lengths"].tolist()):
        ids = text.tolist()
        if "words" not in case:
            rows.append(label_text(ids, config, weights)[None])
            continue
        count, tokens = 0, 0
        while tokens < len(ids):
            tokens += words[count]
            count += 1
        rows.append(label_words(ids, words[:count], config, weights))
        words = words[count:]
    logits = linear("classifier", torch.cat(rows), weights)
    differs = (logits - case["logits"]).abs().max().item()
    what = ", ".join(str(config[key]) for key in ("body", "pooling", "attention"))
    assert differs < 2e-6 * max(1, logits.abs().max().item()), f"{what}: differs by {differs}"
    print(f"{what}: logits of up to {logits.abs().max():.2f} differ by {differs:.1e} at most")


with torch.no_grad():
    for name in sys.argv[1].split(","):
        check(name)
