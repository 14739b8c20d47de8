"""docs/benchmarks.md, or that of another machine, and its charts, from the figures of a
run."""

import json
import math
from pathlib import Path

import charts

PEERS = ("PyTorch", "ONNX Runtime", "ggml", "two GEMMs")
COLOURS = {"libattn": 0, "PyTorch": 1, "ONNX Runtime": 2, "ggml": 3, "two GEMMs": 4}
GOALS = {"decode": (2.5, 2.5), "short": (1.5, 1.5), "additive": (10, 10)}  # of the ratio: full, causal
GOAL = (1.25, 2.0)
MIB = 1 << 20

INTRODUCTION = {
    "forward": "Forward in fp32, H = 8 up to L = 2,048, 2 at 4,096 and 1 beyond.",
    "backward": "`gradients` is the backward pass alone (`torch.autograd.grad` on a graph "
    "that is kept), `both` a forward pass and then its gradients. Nobody else here has a "
    "backward pass.",
    "decode": "One query for 32 heads over 8,192 cached keys of 8 heads, D = 128; sets of "
    "keys and values that fill 256 MiB take turns, so that no cache helps. PyTorch is taken "
    "at its best of `enable_gqa` and of the group folded into the queries. The rate of reading "
    "memory in the picture is `attn bench`'s, some minutes before: where a host is shared, that "
    "of several cores changes from minute to minute, and a bar may pass it.",
    "16-bit": "Forward with query, key, value and output stored in 16 bits, H = 8.",
    "short": "64 short sequences of 4 heads, as in training a translator.",
    "additive": "Additive attention (Bahdanau et al. 2014), which PyTorch can only write as "
    "a broadcast sum: an array of Lq × Lk × D hyperbolic tangents.",
}


def table(head, rows, right=()):
    """Markdown; `right` are the columns of numbers."""
    ruler = ["---:" if i in right else "---" for i in range(len(head))]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [head, ruler, *rows])


def milliseconds(seconds):
    ms = 1e3 * seconds
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"


# ---- What is asked ----

def is_less_better(row):
    return row["measure"].startswith("time")


def holds(row, bound):
    return row["reached"] <= row[bound] if is_less_better(row) else row["reached"] >= row[bound]


def must_of_plain(row, rows):
    """What is asked of the plain pass of longer sequences that a time is held against, as a
    fraction of the peak; without a mask where nothing is asked of a causal one."""
    operation = "backward" if row["case"].startswith("backward") else "forward"
    D = row["D"] if row["D"] == 128 else 64
    causal = "causal" in row["against"]
    asked = {r["case"]: r["must"] for r in rows
             if (r["op"], r["threads"], r["D"]) == (operation, row["threads"], D) and r["must"]
             and r["Lk"] == 2048}
    return asked.get("causal" if causal else "full", asked.get("full"))


def as_fast_as_both_musts(row, bench):
    """Whether a pass that takes too long beside a plain one would not, were that only as
    fast as it must be."""
    peak = {t["threads"]: t["peak_gflops"] for t in bench["limits"]}[row["threads"]]
    plain = must_of_plain(row, bench["rows"])
    return bool(plain) and is_less_better(row) and row["unit"] == "GFLOP/s" and \
        row["rate"] / peak >= plain / row["must"]


def verdict(row, bench):
    if row["goal"] and holds(row, "goal"):
        return "goal"
    if not row["must"] or holds(row, "must"):
        return "must" if row["must"] else ""
    return "**missed** †" if as_fast_as_both_musts(row, bench) else "**missed**"


def against(row):
    return {"fraction": "of ", "speed": "speed of "}.get(row["measure"], "time of ") + \
        row["against"]


def bound(value):
    return f"{value:.2f}" if value else ""


def asked_table(bench):
    return table(
        ("operation", "case", "type", "threads", "L", "D", "ms", "reached", "must", "goal",
         "holds", "against"),
        [(r["op"], r["case"], r["dtype"], r["threads"], r["Lk"], r["D"],
          milliseconds(r["milliseconds"] / 1e3), f"{r['reached']:.3f}", bound(r["must"]),
          bound(r["goal"]), verdict(r, bench), against(r)) for r in bench["rows"]],
        right=range(3, 10))


def reason_for(row, reasons):
    for given in reasons:
        if all(row.get(key) == value for key, value in given.items() if key != "reason"):
            return given["reason"]
    return "No reason is known yet."


def missed(rows, reasons):
    """The goals that are not reached, and musts where no goal is stated, those with one
    reason together."""
    by_reason = {}
    for row in rows:
        bound = "goal" if row["goal"] else "must"
        if row[bound] and not holds(row, bound):
            words = f"{row['op']} {row['case']}, {row['dtype']}, L {row['Lk']}, D {row['D']}, " \
                f"{row['threads']}T: {row['reached']:.3f} for {row[bound]:.2f}"
            by_reason.setdefault(reason_for(row, reasons), []).append(words)
    return "\n".join(f"* {'; '.join(cases)}.\n  {reason}" for reason, cases in by_reason.items())


def asked(results, reasons):
    bench = results["bench"]
    rows = bench["rows"]
    musts = [r for r in rows if r["must"]]
    goals = [r for r in rows if r["goal"]]
    limits = "; ".join(
        f"{t['threads']} thread{'s' * (t['threads'] > 1)}: {t['peak_gflops']:.1f} GFLOP/s on "
        "registers" + (f", {t['read_gbytes']:.1f} GB/s read" if t["read_gbytes"] else "")
        for t in bench["limits"])
    runs = bench.get("runs", 1)
    middle = (f", and of {runs} runs the one in the middle, so that what holds here held in "
              "most of them" if runs > 1 else "")
    lost = [r for r in musts if not holds(r, "must")]
    fast = sum(as_fast_as_both_musts(r, bench) for r in lost)
    beside = (f" Of the {len(lost)} that do not hold, {fast} are times over a plain pass that is "
              "faster than it must be: over one at its must they would hold (†)." if fast else "")
    text = [
        "## Near the limit", "",
        f"`attn bench --full`, best of several turns{middle}. A *fraction* is exact work (4·D "
        "operations for each visible pair forward, 10·D backward; for decode the bytes of keys "
        "and values) a second, over what the machine can do at most: multiply-adds on registers "
        "alone, for as long as the longest of a group of cases and between their turns, or nothing but "
        "reading the same keys and values. All tensors ask for large pages, as those of models "
        "do. A *time* is over that of a simpler case, where less is better; a *speed* is the "
        "inverse. `must` and `goal` are what was asked of the project; `holds` says which of them "
        "the figure meets." + (" With AMX fp32 is multiplied by tiles in parts of bfloat16 "
        "([kernels.md](kernels.md)), which may pass the rate of multiply-adds."
        if bench["isa"] == "amx" else ""), "",
        f"Limits of this run, {bench['isa']}: {limits}.", "",
        f"**{sum(holds(r, 'must') for r in musts)} of {len(musts)} musts hold, "
        f"{sum(holds(r, 'goal') for r in goals)} of {len(goals)} goals are reached.**{beside}", "",
        asked_table(bench), ""]
    why = missed(rows, reasons.get(bench["isa"], []))
    if why:
        text += ["### Goals not reached, and why", "", why, ""]
    return text


# ---- Against others ----

def goal_of(row):
    return GOALS.get(row["part"], GOAL)[row["causal"]]


def ratios(row):
    """Times of the peers over ours."""
    return {name: peer["seconds"] / row["ours"] for name, peer in row["peers"].items()}


def peer_cell(row, name):
    if name not in row["peers"]:
        return "–"
    ratio = ratios(row)[name]
    words = f"{milliseconds(row['peers'][name]['seconds'])} ({ratio:.2f}×)"
    return f"**{words}**" if ratio < 1 else words


def case_words(row):
    words = [{"backward": "gradients", "both": "both"}.get(row["gradients"], ""),
             "causal" if row["causal"] else "full"]
    return " ".join(filter(None, words))


def peers_table(rows):
    names = [name for name in PEERS if any(name in r["peers"] for r in rows)]
    body = []
    for row in rows:
        least = min(ratios(row).values())
        difference = max(p["difference"] for p in row["peers"].values())
        body.append((case_words(row), row["dtype"], row["threads"], row["L"], row["D"],
                     milliseconds(row["ours"]), *(peer_cell(row, n) for n in names),
                     f"{least:.2f}×", f"{goal_of(row):g}×", f"{difference:.0e}"))
    return table(("case", "type", "threads", "L", "D", "libattn ms",
                  *(f"{n} ms" for n in names), "least", "goal", "difference"),
                 body, right=range(2, 9 + len(names)))


def behind(rows):
    found = []
    for row in rows:
        for name, ratio in ratios(row).items():
            if ratio < 1:
                found.append(f"* {row['name']}: {ratio:.2f}× {name} "
                             f"({row['peers'][name]['variant']})")
    return found


def against_peers(results, parts, pictures):
    rows = [row for part in parts for row in results["parts"][part]]
    compared = [ratio for row in rows for ratio in ratios(row).values()]
    goals = sum(min(ratios(row).values()) >= goal_of(row) for row in rows)
    text = [
        "## Against others", "",
        "Everybody in one process, on the same inputs and the same number of threads, by turns; "
        "the best time counts. In brackets: the other's time over ours, so that 2× means twice "
        "our time and anything under 1× (bold) means that we are behind. `least` is the smallest "
        "of them, `difference` the largest difference of any element of anybody's results "
        "from ours (ggml's keys and values are also tried in fp16, which is coarser, and its "
        "better time counts).", "",
        f"**Ahead in {sum(r >= 1 for r in compared)} of {len(compared)} comparisons; the goal is "
        f"reached against every peer in {goals} of {len(rows)} cases.**", ""]
    text += who_they_are(results)
    lost = behind(rows)
    if lost:
        text += ["Behind:", "", *lost, ""]
    else:
        text += ["Behind nowhere.", ""]
    for part in parts:
        text += [f"### {part.capitalize()}", "", INTRODUCTION.get(part, ""), ""]
        if part == "forward":
            text += [f"![Fraction of peak by length]({pictures}-peak.svg)", ""]
        if part == "decode":
            text += [f"![Bytes a second in decoding]({pictures}-decode.svg)", ""]
        text += [peers_table(results["parts"][part]), ""]
    return text


def who_they_are(results):
    lines = []
    if "ggml" in results["versions"]:
        lines.append(
            f"ggml is the package libggml-python, whose library is built for "
            f"{results.get('ggml_isa', 'AVX2')}; held to AVX2 as well, libattn's times of "
            "forward on one thread are " + avx2_words(results) + " of ggml's.")
    for name, reason in results["missing"].items():
        lines.append(f"{name} is left out: {reason}.")
    return [*lines, ""] if lines else []


def avx2_words(results):
    found = [row["ours_avx2"] / row["peers"]["ggml"]["seconds"]
             for row in results["parts"].get("forward", [])
             if "ours_avx2" in row and "ggml" in row["peers"]]
    return f"{min(found):.2f} to {max(found):.2f}" if found else "not measured"


def recurrent_section(rows):
    """Layers of recipes' sizes, whose time is to be PyTorch's at most."""
    body = [(r["cell"] + " both ways" * r["both_ways"],
             "with backward" if r["trains"] else "forward", r["threads"], r["sequences"],
             f"{r['shortest']} to {r['length']}" if r["shortest"] < r["length"]
             else r["length"], r["width"], milliseconds(r["ours"]),
             milliseconds(r["products"]), recurrent_cell(r), f"{r['difference']:.0e}")
            for r in rows]
    ahead = sum(r["torch"] >= r["ours"] for r in rows)
    return [
        "### Recurrent", "",
        "Layers at sizes of recipes, as wide as their input. Forward is inference, *with "
        "backward* forward in training and the gradients of input and weights; PyTorch's "
        "sequences come by steps, those of several lengths packed. *Products* are the layer's "
        "products of matrices alone, by OpenBLAS at the same sizes: libattn packs the weights "
        "once for all steps.", "", f"**At PyTorch's speed or ahead in {ahead} of "
        f"{len(rows)}.**", "",
        table(("layer", "", "threads", "sequences", "tokens", "width", "libattn ms",
               "products ms", "PyTorch ms", "difference"), body, right=range(2, 10)), ""]


def recurrent_cell(row):
    words = f"{milliseconds(row['torch'])} ({row['torch'] / row['ours']:.2f}×)"
    return f"**{words}**" if row["torch"] < row["ours"] else words


def step_limits(rows, steps):
    """What no step by multiply-adds exceeds: those of the decoder, at the rate of registers."""
    words = []
    for row in rows:
        for step in steps:
            if row["case"] == "decoder" and step["threads"] == row["threads"]:
                seconds = step["milliseconds"] / 1e3 * step["reached"]
                most = step["B"] * step["Lq"] / seconds
                words.append(f"{most:.0f} with {row['threads']} thread"
                             f"{'s' * (row['threads'] > 1)} "
                             f"({most / max(row['rates'].values()):.2f}× PyTorch)")
    return [] if not words else [
        "With its multiply-adds at the rate of registers, and nothing else to do, the decoder "
        f"would make {', '.join(words)}: no step by multiply-adds makes more.", ""]


def training_section(rows, steps):
    """Whole steps, where 1.3 times the best of PyTorch's tokens is a must."""
    names = sorted({name for row in rows for name in row["rates"]})
    body = [(row["case"], row["threads"], f"{row['ours']:.0f}",
             *(f"{row['rates'][n]:.0f} ({row['ours'] / row['rates'][n]:.2f}×)"
               if n in row["rates"] else "–" for n in names),
             f"{row['ratio']:.2f}×", "1.3×", "1.6×") for row in rows]
    return [
        "### Training", "",
        "Whole steps, forward, backward and optimiser, in target tokens a second: a causal "
        "decoder of 6 layers, width 256, 4 heads and a vocabulary of 8,000 on 16 texts of 256 "
        "tokens, and the translator of recipes/translate-en-fr.json.", "",
        table(("model", "threads", "libattn", *names, "least", "must", "goal"), body,
              right=range(1, 6 + len(names))), "",
        *step_limits(rows, steps)]


# ---- Charts ----

def thousands(n):
    return f"{n // 1024}k" if n >= 1024 else str(n)


def peak_chart(results):
    threads = 1
    peak = next(t["peak_gflops"] for t in results["bench"]["limits"]
                if t["threads"] == threads)
    rows = [r for r in results["parts"]["forward"] if r["threads"] == threads and r["D"] == 64]
    lengths = sorted({r["L"] for r in rows})
    best = max(r["operations"] / r["ours"] / 1e9 / peak for r in rows)
    ticks = [(i / 5, f"{20 * i} %") for i in range(max(5, math.ceil(5 * best)) + 1)]
    drawn, seen = [], []
    for causal in (False, True):
        series = []
        for name in ("libattn", *PEERS):
            points = []
            for row in (r for r in rows if r["causal"] == causal):
                seconds = row["ours"] if name == "libattn" else \
                    row["peers"].get(name, {}).get("seconds")
                if seconds:
                    points.append((row["L"], row["operations"] / seconds / 1e9 / peak))
            if points:
                series.append(charts.Series(name, points, COLOURS[name]))
                seen.append(name)
        drawn.append(charts.Panel(
            "causal" if causal else "every key visible", series, "linear",
            ticks, [(L, thousands(L)) for L in lengths], "length L"))
    names = [(n, COLOURS[n]) for n in ("libattn", *PEERS) if n in seen]
    return charts.panels(
        "Forward, fp32, D = 64, one thread: useful work as a part of the machine's peak",
        "Operations on visible pairs a second, over multiply-adds on registers, by length.",
        names, drawn)


MEMORY_NAMES = {
    "libattn forward": ("libattn", 0),
    "libattn forward and backward, all statistics": ("libattn, backward and statistics too", 5),
    "PyTorch SDPA forward": ("PyTorch SDPA", 1), "PyTorch math forward": ("PyTorch math", 4),
    "ONNX Runtime forward": ("ONNX Runtime", 2),
}


def memory_chart(results):
    rows = results["memory"]
    lengths = sorted({r["L"] for r in rows})
    names = [(short, colour) for name, (short, colour) in MEMORY_NAMES.items()
             if any(r["contender"] == name for r in rows)]

    def panel(title, of, ticks):
        series = [charts.Series(short, [(r["L"], of(r)) for r in rows if r["contender"] == name],
                                colour)
                  for name, (short, colour) in MEMORY_NAMES.items()]
        return charts.Panel(title, [s for s in series if s.points], "log10", ticks,
                            [(L, thousands(L)) for L in lengths], "length L")

    time_ticks = [(1e-4, "0.1 ms"), (1e-3, "1 ms"), (1e-2, "10 ms"), (0.1, "0.1 s"), (1, "1 s"),
                  (10, "10 s"), (100, "100 s")]
    memory_ticks = [(MIB, "1 MiB"), (8 * MIB, "8 MiB"), (64 * MIB, "64 MiB"),
                    (512 * MIB, "512 MiB"), (4096 * MIB, "4 GiB"), (32768 * MIB, "32 GiB")]
    threads = rows[0]["threads"]
    return charts.panels(
        f"Time and memory by length: one head, D = 64, fp32, {threads} threads",
        "Peak resident memory beyond the process before its tensors existed.", names,
        [panel("time", lambda r: r["seconds"], time_ticks),
         panel("memory", lambda r: max(r["bytes"], MIB), memory_ticks)])


def decode_chart(results):
    rows = results["parts"]["decode"]
    threads = max(r["threads"] for r in rows)
    L = max(r["L"] for r in rows)
    limit = next((t["read_gbytes"] for t in results["bench"]["limits"]
                  if t["threads"] == threads), None)
    groups, seen = [], ["libattn"]
    for row in (r for r in rows if r["threads"] == threads and r["L"] == L):
        size = 4 if row["dtype"] == "fp32" else 2
        total = 2 * size * row["L"] * row["D"] * 8

        def entry(seconds):
            rate = total / seconds / 1e9
            return rate, f"{rate:.1f} GB/s, {milliseconds(seconds)} ms"

        values = {"libattn": entry(row["ours"])}
        values |= {n: entry(row["peers"][n]["seconds"]) for n in PEERS if n in row["peers"]}
        seen += values
        groups.append((row["dtype"], values))
    names = [(n, COLOURS[n]) for n in ("libattn", *PEERS) if n in seen]
    return charts.bars(
        f"Decoding: a query of 32 heads over {L:,} cached keys of 8 heads, D = 128, "
        f"{threads} thread{'s' * (threads > 1)}",
        "Bytes of keys and values a second.", names, groups, "",
        (limit, f"reading memory, {limit:.1f} GB/s") if limit else None)


# ---- Accuracy ----

def accuracy_section(rows):
    names = [n for n in ("libattn", *PEERS) if any(n in r["errors"] for r in rows)]
    body = [(r["result"], "causal" if r["causal"] else "full", r["L"], r["D"],
             *(f"{r['errors'][n]:.1e}" if n in r["errors"] else "–" for n in names))
            for r in rows]
    gradients = [r["errors"]["libattn"] / r["errors"]["PyTorch"] for r in rows
                 if "gradient" in r["result"]]
    return [
        "## Accuracy", "",
        "Errors against double precision in fp32 on normally distributed inputs: the largest of "
        "any element, over the largest element. Gradients of libattn are off by "
        f"{min(gradients):.2f} to {max(gradients):.2f} of what PyTorch's are (2 is the bound).",
        "", table(("result", "case", "L", "D", *names), body, right=range(2, 4 + len(names))),
        ""]


# ---- Memory ----

def memory_section(results, pictures):
    rows = results["memory"]
    lengths = sorted({r["L"] for r in rows})
    body = []
    for name in MEMORY_NAMES:
        mine = {r["L"]: r for r in rows if r["contender"] == name}
        if mine:
            body.append((name, *(
                f"{mine[L]['seconds']:.3g} s, {mine[L]['bytes'] / MIB:.0f} MiB" if L in mine
                else "–" for L in lengths)))
    text = [
        "## Time and memory by length", "",
        "One head, D = 64, every key visible, each figure in a process of its own: the most "
        "memory that was resident beyond what the process had before its tensors existed. The "
        "forms that store all scores stop where these would take more than 8 GiB.", "",
        f"![Time and memory by length]({pictures}-memory.svg)", "",
        table(("", *(f"L {L}" for L in lengths)), body, right=range(1, 1 + len(lengths))), ""]
    promise = results.get("memory_promise")
    if promise:
        beyond = (promise["bytes"] - promise["tensors"]) / MIB
        text += [
            f"Forward and backward with all statistics at L = {promise['L']}, H = "
            f"{promise['H']}, D = {promise['D']}, causal: inputs, outputs, gradients and "
            f"statistics take {promise['tensors'] / MIB:.0f} MiB, the work besides "
            f"{beyond:.0f} MiB (64 MiB is the bound: "
            f"{'it holds' if beyond <= 64 else '**it is missed**'}); "
            f"{promise['seconds']:.0f} s.", ""]
    return text


# ---- The document ----

def machine_section(results):
    machine = [(name, value) for name, value in results["machine"].items()]
    machine += [("versions", ", ".join(f"{n} {v}" for n, v in results["versions"].items())),
                ("commit", results["commit"]), ("date", results["date"]),
                ("command", f"`{results['command']}`")]
    return ["## The machine", "", table(("", ""), machine), ""]


def other_machines(docs, own):
    """Links to what was measured elsewhere."""
    others = [path for path in sorted(docs.glob("benchmarks*.md")) if path != own]
    named = ", ".join(
        f"[{path.stem.partition('-')[2] or 'the first one'}]({path.name})" for path in others)
    return [f"Other machines: {named}.", ""] if others else []


def write(results, root, name):
    """name: of the machine, where the document is not the first one's."""
    docs = Path(root, "docs")
    suffix = f"-{name}" if name else ""
    document, pictures = docs / f"benchmarks{suffix}.md", f"pictures/bench{suffix}"
    reasons = json.loads(Path(root, "bench/peers/reasons.json").read_text())
    training, recurrent = (results["parts"].get(p) for p in ("training", "recurrent"))
    steps = [row for row in results["bench"]["rows"] if row["op"] == "training"]
    parts = [p for p in INTRODUCTION if results["parts"].get(p)]
    for chart, draw in (("peak", peak_chart), ("memory", memory_chart),
                        ("decode", decode_chart)):
        (docs / f"{pictures}-{chart}.svg").write_text(draw(results))
    text = [
        "# Benchmarks", "",
        "How near libattn comes to this machine's limit, and how it stands beside others. Every "
        "figure was measured and written here by `python3 bench/peers/run.py`, none is typed by "
        "hand. Run it on your own machine: "
        "[bench/peers](../bench/peers/README.md).", "",
        *other_machines(docs, document), *machine_section(results), *asked(results, reasons),
        *against_peers(results, parts, pictures),
        *(recurrent_section(recurrent) if recurrent else []),
        *(training_section(training, steps) if training else []),
        *memory_section(results, pictures),
        *accuracy_section(results["accuracy"])]
    document.write_text("\n".join(text).rstrip() + "\n")
