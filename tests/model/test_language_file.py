"""Opens a language model's folder in `transformers`, compares the logits in its
case.safetensors, and saves it again beside it.

Called by test_language_file.c:  FOLDER
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
from transformers import AutoModelForCausalLM, LlamaForCausalLM
from transformers.utils import logging as progress

progress.disable_progress_bar()


class Warned(logging.Handler):
    """Any warning while the model is opened is a failure."""

    def emit(self, record):
        if record.levelno >= logging.WARNING:
            raise SystemExit(f"transformers warns: {record.getMessage()}")


folder = sys.argv[1]
case = load_file(os.path.join(folder, "case.safetensors"))
logging.getLogger("transformers").addHandler(Warned())
warnings.simplefilter("error")
model, report = AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32, output_loading_info=True)
warnings.simplefilter("default")
for kind, keys in report.items():
    assert not keys, f"{kind}: {keys}"
assert type(model) is LlamaForCausalLM, type(model)
with torch.no_grad():
    theirs = model.eval()(case["ids"].long()[None]).logits[0]
largest = (theirs - case["logits"]).abs().max().item()
scale = case["logits"].abs().max().item()
assert largest < 2e-5 * max(scale, 1), f"logits of up to {scale} differ by {largest}"
print(f"logits of up to {scale:.2f} differ by {largest:.1e} at most")
model.save_pretrained(os.path.join(folder, "again"))
