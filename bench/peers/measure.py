"""Contenders take turns, and of each the best time counts."""

import time
from dataclasses import dataclass, field

# Of results, by the type of the tensors.
TOLERANCE = {"fp32": 1e-4, "fp16": 4e-3, "bf16": 3e-2}


@dataclass
class Contender:
    """One way to compute a case.  run() does it once; results() gives what run() left, as
    fp32 arrays in the order of the case.  peer is the column of the table, variant says
    which of a peer's several ways this is."""

    peer: str
    run: object
    results: object
    variant: str = ""
    tolerance: float = TOLERANCE["fp32"]
    rest: object = None       # stops threads that would wait for work by spinning
    best: float = field(default=float("inf"))


def timed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def turn(contender, span):
    """A few calls in a row; the first one only wakes the threads, where calls are short."""
    # Threads of the one before may still spin, waiting for work.
    time.sleep(0.004)
    first = timed(contender.run)
    spent = first
    if first > 0.02:
        contender.best = min(contender.best, first)
    while spent < span:
        took = timed(contender.run)
        contender.best = min(contender.best, took)
        spent += took
    if contender.rest:
        contender.rest()


def alternate(contenders, seconds, fewest=3):
    """Fills best of each.  Rounds begin with another one each time."""
    contenders = list(contenders)
    start, rounds = time.perf_counter(), 0
    while rounds < fewest or time.perf_counter() - start < seconds:
        for contender in contenders:
            turn(contender, 0.02)
        contenders = contenders[1:] + contenders[:1]
        rounds += 1
    return rounds


def disagreement(ours, other):
    """The largest difference of any element, over all results."""
    import numpy
    worst = 0.0
    for left, right in zip(ours.results(), other.results(), strict=True):
        if left.shape != right.shape or not numpy.isfinite(right).all():
            return float("inf")
        worst = max(worst, float(numpy.abs(left - right).max()))
    return worst
