"""Time and memory by length, each measured in a process of its own:

    python3 memory.py CONTENDER L H THREADS

prints {"seconds": …, "bytes": …, "tensors": …}: the most memory that was resident beyond
what the process had before its tensors existed, and how much of it is tensors."""

import json
import subprocess
import sys
import time
from pathlib import Path

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
D = 64

# A quadratic form is left out where it would take more than this.
LIMIT_BYTES = 8 << 30

LINEAR = ("libattn forward", "libattn forward and backward, all statistics",
          "PyTorch SDPA forward")
QUADRATIC = ("PyTorch math forward", "ONNX Runtime forward")

# Matrices of L × L floats that it holds at once, measured at 8,192.
MATRICES = {"PyTorch math forward": 2, "ONNX Runtime forward": 1}


def status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")


def everything(case, inputs, engine):
    """Forward with all statistics, then backward."""
    import numpy
    context = engine.context(case.threads)
    query, key, value = inputs.query[0], inputs.key[0], inputs.value[0]
    rows = (case.B, case.H, case.L)
    statistics = {name: numpy.zeros(rows, numpy.float32) for name in (
        "entropy", "largest_weight", "distance", "signed_distance", "first_key_mass",
        "own_mass", "previous_mass", "next_mass", "received")}
    statistics |= {name: numpy.zeros(rows, numpy.int64)
                   for name in ("largest_key", "visible_keys")}
    statistics |= {"top": 4, "top_weight": numpy.zeros((*rows, 4), numpy.float32),
                   "top_key": numpy.zeros((*rows, 4), numpy.int64)}
    lse, output = numpy.zeros(rows, numpy.float32), numpy.zeros_like(query)
    problem = context.problem(query, key, value, output, lse=lse, statistics=statistics,
                              causal=case.causal)
    left = [numpy.zeros_like(x) for x in (query, key, value)]
    forward = context.call("forward", *problem)
    backward = context.backward(problem, inputs.output_gradient, *left)
    tensors = sum(x.nbytes for x in (query, key, value, output, lse,
                                     inputs.output_gradient, *left))
    tensors += sum(x.nbytes for x in statistics.values() if not isinstance(x, int))
    return lambda: (forward(), backward()), tensors


def prepare(contender, case, inputs, engine):
    """run, and the bytes of its tensors."""
    tensors = 4 * inputs.query[0].nbytes
    if contender.endswith("all statistics"):
        return everything(case, inputs, engine)
    if contender == "libattn forward":
        return next(engine.contenders(case, inputs)).run, tensors
    if contender.startswith("ONNX"):
        from peer_onnx import OnnxRuntime
        return next(OnnxRuntime().contenders(case, inputs)).run, tensors
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from peer_torch import Torch
    backend = SDPBackend.MATH if "math" in contender else SDPBackend.FLASH_ATTENTION
    inner = next(Torch().contenders(case, inputs)).run

    def run():
        with sdpa_kernel(backend):
            inner()

    return run, tensors


def child(contender, L, H, threads, causal, root, library, pool):
    from cases import Case, make_inputs
    from ours import Ours
    engine = Ours(root, library, pool)
    gradients = "backward" if contender.endswith("all statistics") else ""

    def ready(length):
        case = Case("memory", threads, length, D, causal, H=H, gradients=gradients)
        return prepare(contender, case, make_inputs(case), engine)

    ready(64)[0]()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    run, tensors = ready(L)
    seconds, spent = float("inf"), 0.0
    while spent < 0.5:
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        seconds, spent = min(seconds, took), spent + took
    return {"seconds": seconds, "bytes": status("VmHWM") - before, "tensors": tensors}


def fits(contender, L, H):
    return 4 * H * L * L * MATRICES.get(contender, 0) <= LIMIT_BYTES


def measure(contender, L, H, threads, causal, paths):
    """In a process of its own; None where it would not fit."""
    if not fits(contender, L, H):
        return None
    command = [sys.executable, __file__, contender, L, H, threads, int(causal), *paths]
    said = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return {"contender": contender, "L": L, "H": H, "D": D, "threads": threads,
            "causal": causal, **json.loads(said.stdout)}


if __name__ == "__main__":
    name, L, H, threads, causal, *paths = sys.argv[1:]
    print(json.dumps(child(name, int(L), int(H), int(threads), bool(int(causal)), *paths)))
