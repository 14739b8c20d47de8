"""Compares the logits in a folder's case.safetensors with those of `transformers`.

Called by test_language.c:  FOLDER
"""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
# Comparing rests on no speed, and threads that wait for each other crawl on a busy machine.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM

with safe_open(os.path.join(sys.argv[1], "case.safetensors"), "pt") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
    config = json.loads(file.metadata()["config"])
ids, starts, logits = (tensors.pop(name) for name in ("ids", "starts", "logits"))
# Version 5 keeps the base among the rotary parameters.
config["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"]}
model = LlamaForCausalLM(LlamaConfig(**config)).eval()
if config["tie_word_embeddings"]:
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
model.load_state_dict(tensors, strict=True)
largest = 0.0
with torch.no_grad():
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist()):
        if begin == end:
            continue
        theirs = model(ids[begin:end].long()[None]).logits[0]
        largest = max(largest, (theirs - logits[begin:end]).abs().max().item())
scale = logits.abs().max().item()
assert largest < 2e-5 * max(scale, 1), f"logits of up to {scale} differ by {largest}"
print(f"logits of up to {scale:.2f} differ by {largest:.1e} at most")
