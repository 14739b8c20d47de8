"""Whole training steps beside PyTorch's, by training.py, which takes turns in a process of
its own: the decoder of src/train/step.h, and the translator of recipes/translate-en-fr.json
where its text is found.  Both sides begin from other random numbers, so no results are
compared; the losses of both start at the logarithm of the vocabulary."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = "translate/tatoeba-en-fr.train.tsv.xz"
LENGTHS = {"decoder": 256, "translator": 0}


def find_data():
    """The folder that ATTN_DATA names, or that lies beside the project; None without."""
    for folder in (os.environ.get("ATTN_DATA"), HERE.parents[2] / "shared/data"):
        if folder and Path(folder, DATA).exists():
            return folder
    return None


def row(kind, command, threads, seconds, data):
    told = [sys.executable, HERE / "training.py", kind, "--attn", command, "--threads",
            threads, "--seconds", seconds, "--rounds", 2]
    told += ["--data", data] if data else []
    rates = json.loads(subprocess.run(list(map(str, told)), check=True, text=True,
                                      stdout=subprocess.PIPE).stdout)["tokens_per_second"]
    ours = rates.pop("libattn")
    best = max(rates, key=rates.get)
    return {"part": "training", "name": f"training, {kind}, {threads} thread"
            + "s" * (threads > 1), "case": kind, "threads": threads, "L": LENGTHS[kind],
            "ours": ours, "rates": rates, "best": best, "ratio": ours / rates[best]}


def measure(command, threads, seconds, full, say):
    """Rows; the translator, which takes minutes, with --full alone."""
    rows, data = [], find_data()
    wanted = [("decoder", count, None) for count in threads]
    if full and data:
        wanted.append(("translator", max(threads), data))
    elif full:
        say(f"  the translator is left out: ATTN_DATA names no folder with {DATA}")
    for kind, count, folder in wanted:
        rows.append(row(kind, command, count, 3 * seconds, folder))
        say(f"  {rows[-1]['name']}: {rows[-1]['ours']:.0f} tokens a second, "
            f"{rows[-1]['best']} {rows[-1]['rates'][rows[-1]['best']]:.0f}")
    return rows
