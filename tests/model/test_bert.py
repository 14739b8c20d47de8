"""Compares BERTs in folders with what `transformers` makes of them, and makes some.

Called by test_bert_file.c:  check|make  CASE FOLDER CASE FOLDER...
"""
import logging
import os
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
# Comparing rests on no speed, and threads that wait for each other crawl on a busy machine.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification,
                          BertForTokenClassification)
from transformers.utils import logging as progress

progress.disable_progress_bar()

CLASSES = {"masked": BertForMaskedLM, "untied": BertForMaskedLM,
           "sequence": BertForSequenceClassification, "tokens": BertForTokenClassification,
           "mean": BertForTokenClassification}

MEAN = "AttnBertMeanClassifier"  # a class of ours: the mean of the tokens' logits


class Warned(logging.Handler):
    """Any warning while a model is opened is a failure."""

    def emit(self, record):
        if record.levelno >= logging.WARNING:
            raise SystemExit(f"transformers warns: {record.getMessage()}")


def open_model(case, folder):
    logging.getLogger("transformers").addHandler(Warned())
    warnings.simplefilter("error")
    assert BertConfig.from_pretrained(folder).architectures == [
        MEAN if case == "mean" else CLASSES[case].__name__]
    model, report = CLASSES[case].from_pretrained(folder, dtype=torch.float32,
                                                  output_loading_info=True)
    for what, keys in report.items():
        assert not keys, f"{what}: {keys}"
    warnings.simplefilter("default")
    return model.eval()


def logits_of(model, case, batch):
    """All texts in one padded batch: a text's logits must not depend on the padding."""
    ids, types, starts = (batch[name].long() for name in ("ids", "types", "starts"))
    lengths = (starts[1:] - starts[:-1]).tolist()
    shape = (len(lengths), max(lengths))
    padded, padded_types, mask = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    for i, (begin, length) in enumerate(zip(starts.tolist(), lengths)):
        padded[i, :length] = ids[begin:begin + length]
        padded_types[i, :length] = types[begin:begin + length]
        mask[i, :length] = 1
    with torch.no_grad():
        logits = model(padded, attention_mask=mask, token_type_ids=padded_types).logits
    if logits.dim() == 2:
        return logits
    texts = [logits[i, :length] for i, length in enumerate(lengths)]
    return torch.stack([text.mean(0) for text in texts]) if case == "mean" else torch.cat(texts)


def check(case, folder):
    model = open_model(case, folder)
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    theirs, ours = logits_of(model, case, expected), expected["logits"]
    assert theirs.shape == ours.shape, (theirs.shape, ours.shape)
    largest, scale = (theirs - ours).abs().max().item(), ours.abs().max().item()
    assert largest < 2e-5 * max(scale, 1), f"logits of up to {scale} differ by {largest}"
    if case in ("sequence", "tokens", "mean"):
        assert model.config.id2label[0] == "a \"b\"", model.config.id2label
    print(f"{case}: logits of up to {scale:.2f} differ by {largest:.1e} at most")


def make(case, folder):
    torch.manual_seed(1)
    config = BertConfig(vocab_size=23, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=40, max_position_embeddings=16, initializer_range=0.3,
                        layer_norm_eps=1e-5, tie_word_embeddings=case != "untied")
    if case in ("sequence", "tokens", "mean"):
        config.id2label = {i: name for i, name in enumerate(["a", "b", "c", "d", "e"])}
        config.label2id = {name: i for i, name in config.id2label.items()}
    model = CLASSES[case](config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    if case == "mean":
        config.architectures = [MEAN]
        config.save_pretrained(folder)
    logits = logits_of(model, case, load_file(os.path.join(folder, "input.safetensors")))
    save_file({"logits": logits.contiguous()}, os.path.join(folder, "theirs.safetensors"))


for case, folder in zip(sys.argv[2::2], sys.argv[3::2]):
    (check if sys.argv[1] == "check" else make)(case, folder)
