"""How long each recipe trains on this machine, and all of them together:

    ATTN_DATA=FOLDER python3 bench/recipes.py [--attn build/src/cli/attn] [--seconds 15] [RECIPE…]

Each is trained for some seconds, or to its end, in a folder that is thrown away.  Seconds
a step times the recipe's steps; what comes before the first step, the later validations
and the score at the end are not in it.  A recipe whose data or whose start are not there is
named and left out."""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def seconds_of_step(folder):
    """By the last line of log.jsonl that has a time, or by the scores of a whole training."""
    scores = folder / "scores.json"
    if scores.exists():
        return json.loads(scores.read_text())["seconds_per_step"]
    rows = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    timed = [row for row in rows if "seconds" in row]
    return timed[-1]["seconds"] / timed[-1]["step"] if timed else None


def measure(attn, recipe, seconds):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model"
        run = subprocess.run([attn, "train", recipe, "--out", out, "--minutes",
                              str(seconds / 60)], capture_output=True, text=True)
        said = run.stdout + run.stderr
        steps = re.search(r"(\d+) steps of", said)
        if run.returncode != 0 or not steps:
            return None, (said.strip().splitlines() or ["nothing was said"])[-1]
        return (int(steps.group(1)), seconds_of_step(out)), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", metavar="RECIPE",
                        default=sorted((ROOT / "recipes").rglob("*.json")))
    parser.add_argument("--attn", default=ROOT / "build" / "src" / "cli" / "attn")
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    total = 0.0
    print(f"{'recipe':34} {'steps':>6} {'s a step':>9} {'minutes':>8}")
    for recipe in map(Path, arguments.recipes):
        found, reason = measure(arguments.attn, recipe, arguments.seconds)
        if not found or not found[1]:
            print(f"{recipe.stem:34} left out: {reason or 'too few steps; more --seconds'}",
                  flush=True)
            continue
        steps, seconds = found
        total += steps * seconds
        print(f"{recipe.stem:34} {steps:6} {seconds:9.4f} {steps * seconds / 60:8.1f}",
              flush=True)
    print(f"{'together':34} {'':6} {'':9} {total / 60:8.1f}")


if __name__ == "__main__":
    main()
