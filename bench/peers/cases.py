"""What is compared: shapes, and the inputs that every contender gets."""

from dataclasses import dataclass, field

import numpy


@dataclass(frozen=True)
class Case:
    part: str                 # "forward", "backward", "decode", …: a section of the document
    threads: int
    L: int
    D: int
    causal: bool = False
    dtype: str = "fp32"
    B: int = 1
    H: int = 8
    Hk: int = 0               # 0: as many as H
    queries: int = 0          # 0: L
    gradients: str = ""       # "", "backward" or "both"

    @property
    def key_heads(self):
        return self.Hk or self.H

    @property
    def query_length(self):
        return self.queries or self.L

    @property
    def pairs(self):
        """Visible ones, over heads and sequences."""
        each = self.L * (self.L + 1) // 2 if self.causal else self.query_length * self.L
        return self.B * self.H * each

    @property
    def operations(self):
        of_pair = {"": 4, "backward": 10, "both": 14}[self.gradients]
        return of_pair * self.D * self.pairs

    @property
    def name(self):
        words = [self.part, f"L {self.L}", f"D {self.D}", "causal" if self.causal else "full",
                 self.dtype, f"{self.threads} thread" + "s" * (self.threads > 1)]
        if self.gradients:
            words.insert(1, {"backward": "gradients", "both": "forward and gradients"}
                         [self.gradients])
        return ", ".join(words)


@dataclass
class Inputs:
    """fp32 arrays, and the same in the storage type of the case: float16, or the upper
    halves of fp32 as uint16 for bf16."""

    query: list = field(default_factory=list)
    key: list = field(default_factory=list)
    value: list = field(default_factory=list)
    output_gradient: object = None
    additive: object = None   # v of each head, [H][D]


def to_bf16(x):
    """Rounded to nearest even."""
    bits = x.view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def from_bf16(x):
    return (x.astype(numpy.uint32) << 16).view(numpy.float32)


def stored(x, dtype):
    if dtype == "fp32":
        return x
    return x.astype(numpy.float16) if dtype == "fp16" else to_bf16(x)


def widened(x):
    return from_bf16(x) if x.dtype == numpy.uint16 else x.astype(numpy.float32)


# Sets of keys and values that decoding reads in turn, so that no cache helps: as many
# as fill 256 MiB.
RING_BYTES = 1 << 28


def make_inputs(case):
    random = numpy.random.default_rng(case.L + case.D)
    key_shape = (case.B, case.key_heads, case.L, case.D)
    query_shape = (case.B, case.H, case.query_length, case.D)
    sets = 1
    if case.part == "decode":
        size = 2 if case.dtype != "fp32" else 4
        sets = max(2, -(-RING_BYTES // (2 * size * int(numpy.prod(key_shape)))))

    def numbers(shape):
        return stored(random.standard_normal(shape, dtype=numpy.float32), case.dtype)

    inputs = Inputs(query=[numbers(query_shape)])
    for _ in range(sets):
        inputs.key.append(numbers(key_shape))
        inputs.value.append(numbers(key_shape))
    if case.part == "additive":
        inputs.additive = random.standard_normal((case.H, case.D), dtype=numpy.float32)
    if case.gradients:
        inputs.output_gradient = numbers(query_shape)
    return inputs


def heads_for(L):
    """Enough work to time at short lengths, not too much at long ones."""
    return 8 if L <= 2048 else 2 if L <= 4096 else 1


def forward_cases(threads, full):
    for D in (64, 128):
        lengths = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
        if D == 128 and not full:
            lengths = (64, 512, 2048, 8192)
        for L in lengths + ((16384,) if full else ()):
            for causal in (False, True):
                yield Case("forward", threads, L, D, causal, H=heads_for(L))


def backward_cases(threads, full):
    for D in (64, 128):
        lengths = (64, 512, 2048) if D == 64 or full else (512, 2048)
        for L in lengths + ((8192,) if full else ()):
            for causal in (False, True):
                H = heads_for(L) if L > 1024 else 8
                yield Case("backward", threads, L, D, causal, H=H, gradients="backward")
                if L <= 2048 and D == 64:
                    yield Case("backward", threads, L, D, causal, H=H, gradients="both")
        if full or D == 64:
            yield Case("backward", threads, 2048, D, True, H=1, gradients="backward")


def decode_cases(threads, full):
    for L in (8192,) + ((1024, 32768) if full else ()):
        for dtype in ("fp32", "bf16", "fp16"):
            yield Case("decode", threads, L, 128, dtype=dtype, H=32, Hk=8, queries=1)


def sixteen_bit_cases(threads, full):
    for dtype in ("bf16", "fp16"):
        for L, D in ((2048, 64), (2048, 128)) + (((512, 64), (8192, 64)) if full else ()):
            for causal in (False, True):
                yield Case("16-bit", threads, L, D, causal, dtype, H=heads_for(L))


def short_cases(threads, full):
    for L in (8, 16, 32, 64) if full else (16, 32, 64):
        for causal in (False, True):
            yield Case("short", threads, L, 64, causal, B=64, H=4)
        yield Case("short", threads, L, 64, B=64, H=4, gradients="both")


def additive_cases(threads, full):
    for L in (128, 512) + ((1024,) if full else ()):
        for gradients in ("", "backward", "both"):
            yield Case("additive", threads, L, 64, H=4, gradients=gradients)


PARTS = {
    "forward": forward_cases,
    "backward": backward_cases,
    "decode": decode_cases,
    "16-bit": sixteen_bit_cases,
    "short": short_cases,
    "additive": additive_cases,
}
