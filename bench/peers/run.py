#!/usr/bin/env python3
"""Compares libattn with its peers on this machine and writes docs/benchmarks.md with its
charts.  One command, from anywhere:

    python3 bench/peers/run.py            what the document needs, about 20 minutes
    python3 bench/peers/run.py --full     more lengths and head sizes, 50 minutes
    python3 bench/peers/run.py --only forward,decode --seconds 0.3     a trial: no document

It makes its own environment in build-bench/venv (PyTorch, ONNX Runtime, ggml, numpy), runs
ours and theirs by turns in one process on the same inputs, and stops where results differ.
Best run on an idle machine.  Figures stay in build-bench/results.json; --write draws the
document from there without measuring."""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "build-bench"
START = time.time()

PACKAGES = {
    "torch": "torch", "numpy": "numpy", "onnxruntime": "onnxruntime", "onnx": "onnx",
    "libggml-python": "libggml", "tokenizers": "tokenizers",
}
CELLS = "bench/peers/libattn-cells.so"  # in the build folder
OPTIONAL = ("onnxruntime", "onnx", "libggml-python")  # named in the document if left out


def say(text):
    print(text, file=sys.stderr, flush=True)


def enter_environment():
    """Goes on under the interpreter of build-bench/venv, which is made where it is not."""
    python = WORK / "venv/bin/python3"
    if Path(sys.prefix).resolve() == (WORK / "venv").resolve():
        return
    if not (WORK / "venv/complete").exists():
        say(f"making {python.parent.parent} and installing {', '.join(PACKAGES)}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", WORK / "venv"], check=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *(p for p in PACKAGES if p not in OPTIONAL)], check=True)
        for package in OPTIONAL:
            if subprocess.run([*pip, package]).returncode != 0:
                say(f"{package} did not install: it is left out")
        (WORK / "venv/complete").touch()
    os.execv(python, [str(python), *sys.argv])


def build(folder):
    """libattn, the attn command, and the pool."""
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", folder, ROOT], check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "--quiet", "-C", folder, "src/cli/attn", CELLS,
                    f"libattn.so.{version()}"], check=True, stdout=sys.stderr)
    pool = WORK / "pool.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", f"-I{ROOT}/include", HERE / "pool.c",
                    "-o", pool, "-lpthreadpool"], check=True)
    return folder / "libattn.so", folder / "src/cli/attn", pool


def version():
    import re
    return re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text()).group(1)


def find_peers():
    """The peers that are installed, and why others are not."""
    import importlib
    peers, missing = [], {}
    for module, name in (("peer_torch", "Torch"), ("peer_onnx", "OnnxRuntime"),
                         ("peer_ggml", "Ggml")):
        try:
            peers.append(getattr(importlib.import_module(module), name)())
        except (ImportError, OSError) as reason:
            missing[name] = str(reason)
            say(f"{name} is left out: {reason}")
    return peers, missing


def compare(case, ours, peers, seconds):
    """One row: everybody's best time, and how far their results are from ours."""
    from cases import make_inputs
    from measure import alternate, disagreement
    inputs = make_inputs(case)
    mine = list(ours.contenders(case, inputs))
    if case.threads == 1 and case.part in ("forward", "decode"):
        mine += ours.contenders(case, inputs, isa="avx2") if ours.has("avx2") else []
    others = [c for peer in peers for c in peer.contenders(case, inputs)]
    differences = {}
    for contender in mine + others:
        contender.run()
        differences[id(contender)] = disagreement(mine[0], contender)
        if differences[id(contender)] > contender.tolerance:
            raise SystemExit(f"{case.name}: {contender.peer} ({contender.variant}) differs "
                             f"from libattn by {differences[id(contender)]:.1e}")
    rounds = alternate(mine + others, seconds)
    row = {"name": case.name, "rounds": rounds, "operations": case.operations,
           **{key: getattr(case, key) for key in
              ("part", "threads", "L", "D", "causal", "dtype", "B", "H", "gradients")},
           "ours": mine[0].best, "isa": mine[0].variant, "peers": {}}
    if len(mine) > 1:
        row["ours_avx2"] = mine[1].best
    for contender in others:
        best = row["peers"].get(contender.peer)
        if not best or contender.best < best["seconds"]:
            row["peers"][contender.peer] = {
                "seconds": contender.best, "variant": contender.variant,
                "difference": differences[id(contender)]}
        if hasattr(contender, "close"):
            contender.close()
    least = min(row["peers"].values(), key=lambda p: p["seconds"], default=None)
    say(f"  {case.name}: {1e3 * mine[0].best:.3f} ms" + (
        f", best peer {1e3 * least['seconds']:.3f} ms ({least['variant']})" if least else ""))
    return row


def measure_part(part, arguments, ours, peers, results):
    from cases import PARTS
    results["parts"][part] = [
        compare(case, ours, peers, arguments.seconds)
        for threads in arguments.threads for case in PARTS[part](threads, arguments.full)]


def measure_training(arguments, command, results):
    import steps
    results["parts"]["training"] = steps.measure(command, arguments.threads,
                                                 arguments.seconds, arguments.full, say)


def measure_recurrent(arguments, results):
    import cells
    results["parts"]["recurrent"] = cells.measure(arguments.build.resolve() / CELLS,
                                                  arguments.threads, arguments.seconds,
                                                  arguments.full, say)


def measure_memory(arguments, paths, peers, results):
    import memory
    threads = max(arguments.threads)
    names = [p.name for p in peers]
    rows = []
    for contender in memory.LINEAR + memory.QUADRATIC:
        if contender.startswith(("libattn", *names)):
            for L in memory.LENGTHS:
                row = memory.measure(contender, L, 1, threads, False, paths)
                if row:
                    rows.append(row)
                    say(f"  {contender}, L {L}: {row['seconds']:.3f} s, "
                        f"{row['bytes'] / (1 << 20):.0f} MiB")
    results["memory"] = rows
    if not arguments.promise:
        return
    results["memory_promise"] = memory.measure(
        "libattn forward and backward, all statistics", 65536, 8, threads, True, paths)


def measure_bench(arguments, command, results):
    import limits
    results["bench"] = limits.measure(command, arguments.bench_runs, arguments.bench_seconds,
                                      say)


def parts():
    from cases import PARTS
    return ["bench", "accuracy", *PARTS, "recurrent", "training", "memory"]


def check_parts(wanted):
    for part in wanted or []:
        if part not in parts():
            raise SystemExit(f"--only has '{part}', expected some of {', '.join(parts())}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="more lengths and head sizes")
    parser.add_argument("--only", help="parts, by comma: bench, forward, backward, …, memory")
    parser.add_argument("--write", action="store_true",
                        help="draw the document from the figures that are there")
    parser.add_argument("--seconds", type=float, default=1.0,
                        help="time for each comparison (1)")
    parser.add_argument("--bench-seconds", type=float, help="attn bench's --seconds")
    parser.add_argument("--bench-runs", type=int, default=3,
                        help="runs of attn bench, of which the middle counts (3)")
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}",
                        help="numbers of threads, by comma (1 and all processors)")
    parser.add_argument("--no-promise", dest="promise", action="store_false",
                        help="leave out the longest run of memory, a minute")
    parser.add_argument("--name", help="of a machine with a document of its own: writes "
                        "docs/benchmarks-NAME.md in place of docs/benchmarks.md")
    parser.add_argument("--build", type=Path, default=ROOT / "build",
                        help="build folder (build)")
    arguments = parser.parse_args()
    arguments.threads = sorted({int(n) for n in arguments.threads.split(",")})
    return arguments


def main():
    arguments = parse()
    WORK.mkdir(exist_ok=True)
    enter_environment()
    sys.path.insert(0, str(HERE))
    kept = WORK / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {"parts": {}}
    wanted = arguments.only.split(",") if arguments.only else None
    check_parts(wanted)
    if not (arguments.write and not wanted):
        run_all(arguments, wanted, results, kept)
        say(f"measured in {(time.time() - START) / 60:.1f} minutes")
    if arguments.write or not wanted:
        import report
        report.write(results, ROOT, arguments.name)


def told(arguments, results):
    """The command, after those that measured other parts."""
    own = " ".join(["python3 bench/peers/run.py", *sys.argv[1:]])
    before = [results["command"]] if arguments.only and "command" in results else []
    return ", then ".join([*before, own])


def run_all(arguments, wanted, results, kept):
    import machine
    from ours import Ours
    paths = build(arguments.build.resolve())
    ours, (peers, missing) = Ours(ROOT, paths[0], paths[2]), find_peers()
    results.update(
        date=datetime.date.today().isoformat(), commit=machine.commit(ROOT),
        machine=machine.describe(ROOT, arguments.build), full=arguments.full,
        versions={"libattn": version(), "Python": sys.version.split()[0],
                  **{peer.name: peer.version for peer in peers}},
        missing=missing, ggml_isa=next((p.isa for p in peers if p.name == "ggml"), None),
        command=told(arguments, results))
    for part in wanted or parts():
        say(f"{part}, after {(time.time() - START) / 60:.1f} minutes")
        if part == "bench":
            measure_bench(arguments, paths[1], results)
        elif part == "accuracy":
            import accuracy
            results["accuracy"] = accuracy.measure([ours, *peers], say)
        elif part == "recurrent":
            measure_recurrent(arguments, results)
        elif part == "training":
            measure_training(arguments, paths[1], results)
        elif part == "memory":
            measure_memory(arguments, (ROOT, paths[0], paths[2]), peers, results)
        else:
            measure_part(part, arguments, ours, peers, results)
        kept.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
