"""Holds a record against `transformers`: the weights that eager attention returns, joined
into words here by the record's numbers of tokens, and their entropies.

Called by test_build.c:  FOLDER, with a model, its tokenizer.json and record.attn
"""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForSeq2SeqLM

folder = sys.argv[1]
with safe_open(f"{folder}/record.attn", "pt") as file:
    about = json.loads(file.metadata()["attn.record"])
    record = {name: file.get_tensor(name) for name in file.keys()}

tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
END = 2
source = tokenizer.encode(about["source"], add_special_tokens=False).ids + [END]
target = tokenizer.encode(about["translation"], add_special_tokens=False).ids
with torch.no_grad():
    seen = model(input_ids=torch.tensor([source]), output_attentions=True,
                 decoder_input_ids=torch.tensor([[END] + target]))


def joining(words):
    """[words][tokens]: 1 where the token is a piece of the word."""
    counts = [word["tokens"] for word in words]
    matrix = torch.zeros(len(counts), sum(counts))
    first = 0
    for row, count in enumerate(counts):
        matrix[row, first:first + count] = 1
        first += count
    return matrix


def check(name, got, expected, most):
    error = (got - expected).abs().max().item()
    print(f"{name}: {error:.1e}")
    if not error <= most:
        sys.exit(f"{name} differs by {error}, expected at most {most}")


parts = {"encoder": (seen.encoder_attentions, "source_words", "source_words", False),
         "decoder": (seen.decoder_attentions, "read_words", "read_words", True),
         "cross": (seen.cross_attentions, "written_words", "source_words", False)}
for part, (attentions, rows, keys, causal) in parts.items():
    weights = torch.stack([layer[0] for layer in attentions]).double()
    rows, keys = joining(about[rows]).double(), joining(about[keys]).double()
    mean = rows / rows.sum(1, keepdim=True)
    check(f"{part} weights", record[f"{part}.weights"].double(), mean @ weights @ keys.T, 2e-6)
    visible = (torch.arange(weights.shape[2]) + 1 if causal
               else torch.full((weights.shape[2],), weights.shape[3])).double()
    several = visible > 1
    entropy = -torch.special.xlogy(weights, weights).sum(3)
    share = torch.where(several, entropy / visible.log().clamp(min=1e-9), 0.0)
    pieces = rows * several
    joined = share @ pieces.T / pieces.sum(1).clamp(min=1)
    joined = torch.where(pieces.sum(1) > 0, joined, -1.0)
    check(f"{part} entropies of rows", record[f"{part}.row_entropy"].double(), joined, 2e-5)
    known = pieces.sum(1) > 0
    check(f"{part} entropies of heads", record[f"{part}.entropy"].double(),
          joined[:, :, known].mean(2), 2e-5)
