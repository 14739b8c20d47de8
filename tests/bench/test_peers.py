"""bench/peers without the peers: its structures against the compiler's, libattn against
numpy on small shapes, the document and the charts from figures made up.

    test_peers.py ROOT LIBRARY CELLS CC

CELLS is the library of recurrent layers, or "none"."""

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

ROOT, LIBRARY, CELLS, CC = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
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


def logistic(x):
    import numpy
    return 1 / (1 + numpy.exp(-x))


def step(numpy, cell, given, part, state, memory):
    """State and memory after a step; `given` is the input's part of the gates."""
    width = len(state)
    gates = given + part
    if cell in ("RNN", "ReLU"):
        return numpy.tanh(gates) if cell == "RNN" else numpy.maximum(gates, 0), memory
    first, second = (logistic(gates[n * width:(n + 1) * width]) for n in (0, 1))
    if cell == "GRU":
        candidate = numpy.tanh(given[2 * width:] + first * part[2 * width:])
        return (1 - second) * candidate + second * state, memory
    memory = second * memory + first * numpy.tanh(gates[2 * width:3 * width])
    return logistic(gates[3 * width:]) * numpy.tanh(memory), memory


def recurrent_reference(numpy, case, inputs, x, parameters):
    """The states of all tokens in double precision, token by token."""
    for layer in range(case.layers):
        sides = []
        for way in ("", "_reverse")[:case.ways]:
            weight, turn, bias, more = (parameters[f"{name}_l{layer}{way}"] for name in (
                "weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            y, first = numpy.zeros((len(x), case.width)), 0
            for length in inputs.lengths:
                state = memory = numpy.zeros(case.width)
                tokens = range(first, first + length)
                for token in reversed(tokens) if way else tokens:
                    state, memory = step(numpy, case.cell, weight @ x[token] + bias,
                                         turn @ state + more, state, memory)
                    y[token] = state
                first += length
            sides.append(y)
        x = numpy.concatenate(sides, 1)
    return x


def recurrent_layers_agree_with_numpy():
    """States; and gradients, as what they say of a step of everything in some direction."""
    import numpy
    import cells
    ours = cells.Ours(CELLS)
    random = numpy.random.default_rng(1)
    for case in (cells.Case("GRU", 4, 5, 5, 7, 6, 1, trains=True),
                 cells.Case("LSTM", 6, 5, 1, 3, 17, 2, layers=2, both_ways=True, trains=True),
                 cells.Case("RNN", 2, 9, 9, 5, 4, 1, trains=True),
                 cells.Case("ReLU", 2, 3, 2, 4, 40, 2),
                 cells.Case("LSTM", 4, 6, 2, 40, 33, 2)):
        layer, inputs = ours.open(case)
        contender = ours.contender(case, layer, inputs)
        contender.run()
        states, *gradients = contender.results()
        names = list(inputs.parameters)
        given = [a.astype(numpy.float64) for a in (inputs.x, *inputs.parameters.values())]

        def at(some, case=case, inputs=inputs, names=names):
            return recurrent_reference(numpy, case, inputs, some[0],
                                       dict(zip(names, some[1:])))

        assert numpy.abs(states - at(given)).max() < 1e-5, case.name
        if case.trains:
            way = [random.standard_normal(a.shape) for a in given]
            ends = [(at([a + sign * 1e-5 * b for a, b in zip(given, way)])
                     * inputs.output_gradient).sum() for sign in (1, -1)]
            slope = (ends[0] - ends[1]) / 2e-5
            told = sum((a * b).sum() for a, b in zip(gradients, way, strict=True))
            assert abs(told - slope) < 1e-4 * max(1, abs(slope)), (case.name, told, slope)
        ours.destroy(layer)


def of_three_runs_the_middle_counts():
    import limits
    runs = [{"isa": "x", "rows": [{"reached": r, "milliseconds": 10 * r}, {"reached": -r}],
             "limits": [{"threads": 1, "peak_gflops": 100 * r, "read_gbytes": None}]}
            for r in (3, 1, 2)]
    assert limits.middle(runs) == {
        "isa": "x", "runs": 3, "rows": [{"reached": 2, "milliseconds": 20}, {"reached": -2}],
        "limits": [{"threads": 1, "peak_gflops": 200, "read_gbytes": None}]}
    assert limits.middle(runs[:1])["rows"] == runs[0]["rows"]


def a_time_beside_a_fast_plain_pass_is_marked():
    import report
    plain = {"op": "forward", "case": "full", "threads": 1, "D": 64, "Lk": 2048, "must": 0.8,
             "goal": None, "reached": 1.0, "rate": 100, "unit": "GFLOP/s", "measure": "fraction",
             "against": "peak"}
    slow = {**plain, "op": "shapes", "case": "bias", "must": 1.6, "measure": "time",
            "against": "plain"}
    bench = {"limits": [{"threads": 1, "peak_gflops": 100}], "rows": [plain]}
    for took, words in ((1.5, "must"), (1.9, "**missed** †"), (2.1, "**missed**")):
        row = {**slow, "reached": took, "rate": 100 / took}
        assert report.verdict(row, bench) == words, (took, report.verdict(row, bench))


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
             of_three_runs_the_middle_counts, a_time_beside_a_fast_plain_pass_is_marked,
             libattn_agrees_with_numpy, recurrent_layers_agree_with_numpy]
    if CELLS == "none":
        print(f"skipped: {tests.pop().__name__} (built without models)")
    try:
        import numpy  # noqa: F401
    except ImportError:
        for test in tests[4:]:
            print(f"skipped: {test.__name__} (no numpy)")
        tests = tests[:4]
    for test in tests:
        test()
        print(f"passed: {test.__name__}")


main()
