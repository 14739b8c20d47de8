"""bench/peers without the peers: its structures against the compiler's, libattn against
numpy on small shapes, the document and the charts from figures made up.

    test_peers.py ROOT LIBRARY CC"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.dom import minidom

python = os.environ.get("ATTN_PYTHON", sys.executable)
if python != sys.executable and shutil.which(python):
    os.execv(python, [python, *sys.argv])

ROOT, LIBRARY, CC = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench/peers"))

import attn  # noqa: E402
import charts  # noqa: E402


def structures_lie_as_the_compiler_lays_them():
    found = attn.structures_of(attn.header_text(ROOT))
    assert {"attn_shape", "attn_tensors", "attn_options"} <= set(found)
    lines = []
    for name, structure in found.items():
        for member, _ in structure._fields_:
            lines.append(f'printf("%zu %zu\\n", sizeof({name}), offsetof({name}, {member}));')
    includes = "".join(f"#include <attn/{path.name}>\n"
                       for path in sorted((ROOT / "include/attn").glob("*.h")))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "sizes.c")
        source.write_text("#include <stdio.h>\n" + includes + "int main(void)\n{\n"
                          + "\n".join(lines) + "\nreturn 0;\n}\n")
        subprocess.run([*CC, source, f"-I{ROOT}/include", "-o", Path(folder, "sizes")],
                       check=True)
        said = subprocess.run([Path(folder, "sizes")], check=True, capture_output=True,
                              text=True).stdout.split("\n")
    ours = [f"{ctypes.sizeof(s)} {getattr(s, member).offset}"
            for s in found.values() for member, _ in s._fields_]
    assert said[:-1] == ours, [pair for pair in zip(said, ours) if pair[0] != pair[1]]


def reference(numpy, case, inputs):
    """Output and gradients of attention in double precision."""
    from cases import widened
    query, key, value = (widened(x[0]).astype(numpy.float64)
                         for x in (inputs.query, inputs.key, inputs.value))
    key, value = (x.repeat(case.H // case.key_heads, axis=1) for x in (key, value))
    scores = query @ key.transpose(0, 1, 3, 2) / numpy.sqrt(case.D)
    if case.causal:
        scores[..., numpy.triu(numpy.ones((case.L, case.L), bool), 1)] = -numpy.inf
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    if not case.gradients:
        return [weights @ value]
    gradient = inputs.output_gradient.astype(numpy.float64)
    into = gradient @ value.transpose(0, 1, 3, 2)
    into = weights * (into - (weights * into).sum(-1, keepdims=True)) / numpy.sqrt(case.D)
    return [into @ key, into.transpose(0, 1, 3, 2) @ query,
            weights.transpose(0, 1, 3, 2) @ gradient]


def libattn_agrees_with_numpy():
    import numpy
    from cases import Case, make_inputs
    from ours import Ours
    ours = Ours(ROOT, LIBRARY, None)
    for case, bound in (
            (Case("forward", 1, 9, 5, H=2), 1e-5),
            (Case("forward", 1, 33, 16, True, B=2, H=2), 1e-5),
            (Case("forward", 1, 20, 8, dtype="fp16", H=2), 2e-3),
            (Case("forward", 1, 20, 8, dtype="bf16", H=2), 2e-2),
            (Case("forward", 1, 64, 16, H=4, Hk=2, queries=1), 1e-5),
            (Case("backward", 1, 17, 8, True, H=2, gradients="backward"), 1e-4),
            (Case("backward", 1, 12, 4, H=2, gradients="both"), 1e-4)):
        inputs = make_inputs(case)
        [contender] = ours.contenders(case, inputs)
        contender.run()
        for got, expected in zip(contender.results(), reference(numpy, case, inputs),
                                 strict=True):
            assert numpy.abs(got - expected).max() < bound, case.name


def charts_are_well_formed():
    panel = charts.Panel("a < b", [charts.Series("ours", [(64, 0.5), (128, 0.9)], 0)],
                         "linear", [(0, "0"), (1, "1")], [(64, "64"), (128, "128")], "L")
    for drawn in (charts.panels("title & more", "what it is", [("ours", 0)], [panel]),
                  charts.bars("title", "what", [("ours", 0), ("theirs", 1)],
                              [("fp32", {"ours": (3.0, "3"), "theirs": (1.0, "1")})],
                              "GB/s", (4.0, "limit"))):
        assert minidom.parseString(drawn).documentElement.tagName == "svg"


def main():
    tests = [structures_lie_as_the_compiler_lays_them, charts_are_well_formed,
             libattn_agrees_with_numpy]
    try:
        import numpy  # noqa: F401
    except ImportError:
        print(f"skipped: {tests.pop().__name__} (no numpy)")
    for test in tests:
        test()
        print(f"passed: {test.__name__}")


main()
