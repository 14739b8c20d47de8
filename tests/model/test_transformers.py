"""Compares what a folder holds with what `transformers` makes of it.

Called by test_transformers.c:  model FOLDER... | tokenizer FOLDER
"""
import logging
import os
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

# Comparing rests on no speed, and threads that wait for each other crawl on a busy machine.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors.torch import load_file
from transformers import (AutoModelForSeq2SeqLM, AutoTokenizer, M2M100ForConditionalGeneration,
                          MarianMTModel)
from transformers.utils import logging as progress

progress.disable_progress_bar()

CLASSES = {"m2m_100": M2M100ForConditionalGeneration, "marian": MarianMTModel}


class Warned(logging.Handler):
    """Any warning while a model is opened is a failure."""

    def emit(self, record):
        if record.levelno >= logging.WARNING:
            raise SystemExit(f"transformers warns: {record.getMessage()}")


def open_model(folder):
    logging.getLogger("transformers").addHandler(Warned())
    warnings.simplefilter("error")
    model, report = AutoModelForSeq2SeqLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    for kind, keys in report.items():
        assert not keys, f"{kind}: {keys}"
    assert type(model) is CLASSES[model.config.model_type], type(model)
    warnings.simplefilter("default")
    return model.eval()


def rows(packed, starts):
    return [packed[a:b].tolist() for a, b in zip(starts[:-1], starts[1:])]


def compare_logits(model, expected, sources, targets):
    logits = rows(expected["logits"], expected["target_starts"].tolist())
    largest = 0.0
    for source, target, ours in zip(sources, targets, logits):
        theirs = model(input_ids=torch.tensor([source]),
                       decoder_input_ids=torch.tensor([target])).logits[0]
        largest = max(largest, (theirs - torch.tensor(ours)).abs().max().item())
    assert largest < 1e-4, f"logits differ by {largest}"
    return largest


def compare_search(model, sources, expected, beams):
    for source, ours in zip(sources, expected.tolist()):
        theirs = model.generate(torch.tensor([source]), num_beams=beams, do_sample=False,
                                max_length=expected.shape[1])[0].tolist()[1:]
        ours = [token for token in ours if token >= 0]
        assert theirs == ours, f"{beams} beams: transformers {theirs}, here {ours}"


def check_model(folder):
    model = open_model(folder)
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    sources = rows(expected["source"], expected["source_starts"].tolist())
    targets = rows(expected["target_in"], expected["target_starts"].tolist())
    with torch.no_grad():
        largest = compare_logits(model, expected, sources, targets)
        compare_search(model, sources, expected["greedy"], 1)
        compare_search(model, sources, expected["beam"], 4)
    print(f"logits differ by {largest:.1e} at most")


def check_tokenizer(folder):
    logging.getLogger("transformers").addHandler(Warned())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id,
            tokenizer.unk_token_id) == (0, 1, 2, 3), tokenizer
    for line in open(os.path.join(folder, "expected.txt"), encoding="utf-8"):
        text, ids = line.rstrip("\n").split("\t")
        ours = [int(i) for i in ids.split()]
        theirs = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert theirs == ours, f"{text!r}: transformers {theirs}, here {ours}"
        fed = tokenizer(text)["input_ids"]
        assert fed == ours + [2], f"{text!r}: with special tokens {fed}, expected </s> at the end"
        assert tokenizer.decode(ours) == text, f"{text!r}: decoded as {tokenizer.decode(ours)!r}"


if sys.argv[1] == "model":
    for folder in sys.argv[2:]:
        check_model(folder)
elif sys.argv[1] == "tokenizer":
    check_tokenizer(sys.argv[2])
