"""Recurrent layers: ours, of src/train/cells.h, and PyTorch's, with the same weights on the same
sequences."""

import ctypes
from dataclasses import dataclass

import numpy

from measure import Contender

CELLS = ("RNN", "ReLU", "GRU", "LSTM")  # attn_cell


class Options(ctypes.Structure):
    """attn_cells_options"""

    _fields_ = [("cell", ctypes.c_int), *((name, ctypes.c_int64) for name in (
                    "width_in", "width", "layers")),
                ("both_ways", ctypes.c_bool), ("has_bias", ctypes.c_bool),
                *((name, ctypes.c_int64) for name in ("sequences", "length", "shortest")),
                ("threads", ctypes.c_size_t), ("pool", ctypes.c_void_p)]


@dataclass(frozen=True)
class Case:
    cell: str
    sequences: int
    length: int
    shortest: int             # of a half of the sequences, whose lengths go evenly up from it
    width_in: int
    width: int
    threads: int
    layers: int = 1
    both_ways: bool = False
    trains: bool = False
    part: str = "recurrent"

    @property
    def name(self):
        words = [self.cell + " both ways" * self.both_ways,
                 "with backward" if self.trains else "forward",
                 f"{self.sequences} of " + f"{self.shortest} to " * (self.shortest < self.length)
                 + f"{self.length} tokens", f"{self.width_in} to {self.width}",
                 f"{self.threads} thread" + "s" * (self.threads > 1)]
        return ", ".join(words)

    @property
    def ways(self):
        return 2 if self.both_ways else 1

    @property
    def parameters(self):
        """Names and shapes, of both sides."""
        gates = {"GRU": 3, "LSTM": 4}.get(self.cell, 1) * self.width
        for layer in range(self.layers):
            width_in = self.ways * self.width if layer else self.width_in
            for way in ("", "_reverse")[:self.ways]:
                yield f"weight_ih_l{layer}{way}", (gates, width_in)
                yield f"weight_hh_l{layer}{way}", (gates, self.width)
                yield f"bias_ih_l{layer}{way}", (gates,)
                yield f"bias_hh_l{layer}{way}", (gates,)


def cases(threads, full):
    """Sizes of recipes: a translator's encoder, a tagger, a classifier of long texts."""
    for cell in ("GRU", "LSTM", "RNN"):
        for trains in (False, True):
            yield Case(cell, 64, 24, 24, 256, 256, threads, trains=trains)
    for cell in ("GRU", "LSTM"):
        for trains in (False, True):
            yield Case(cell, 64, 30, 6, 256, 256, threads, trains=trains)
            yield Case(cell, 32, 25, 25, 128, 128, threads, both_ways=True, trains=trains)
            yield Case(cell, 30, 512, 512, 64, 64, threads, trains=trains)
            if full:
                yield Case(cell, 64, 64, 64, 512, 512, threads, layers=2, trains=trains)


class Inputs:
    def __init__(self, case, starts):
        """x and dy of all tokens; the sequences of a half have the starts given."""
        random = numpy.random.default_rng(case.length + case.width)
        self.tokens = 2 * int(starts[-1])
        self.lengths = 2 * [int(n) for n in numpy.diff(starts)]

        def numbers(*shape):
            return random.standard_normal(shape, dtype=numpy.float32)

        self.x = numbers(self.tokens, case.width_in)
        self.output_gradient = numbers(self.tokens, case.ways * case.width)
        self.parameters = {name: numbers(*shape) * case.width ** -0.5
                           for name, shape in case.parameters}


class Ours:
    name = "libattn"

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        pointer = ctypes.c_void_p
        for name, restype, *argtypes in (
                ("create", ctypes.c_int, pointer, pointer, pointer),
                ("destroy", None, pointer),
                ("parameter", pointer, pointer, ctypes.c_char_p, pointer),
                ("starts", pointer, pointer),
                ("forward", ctypes.c_int, pointer, pointer, pointer),
                ("train", ctypes.c_int, pointer, pointer, pointer, pointer, pointer),
                ("rest", None, pointer),
                ("states", pointer, pointer, ctypes.c_size_t),
                ("products", None, pointer, ctypes.c_bool)):
            function = getattr(self.library, "attn_cells_" + name)
            function.restype, function.argtypes = restype, argtypes
            setattr(self, name, function)

    def open(self, case):
        """The layer, and the inputs for everybody."""
        options = Options(CELLS.index(case.cell), case.width_in, case.width, case.layers,
                          case.both_ways, True, case.sequences, case.length, case.shortest,
                          case.threads)
        cells, message = ctypes.c_void_p(), ctypes.create_string_buffer(1024)
        if self.create(ctypes.byref(cells), ctypes.byref(options), message) != 0:
            raise RuntimeError(f"{case.name}: no layer")
        count = case.sequences // 2 + 1
        starts = array_at(self.starts(cells), (count,), ctypes.c_int64)
        return cells, Inputs(case, starts)

    def contender(self, case, cells, inputs):
        gradients = []
        for name, values in inputs.parameters.items():
            gradient = ctypes.c_void_p()
            at = self.parameter(cells, name.encode(), ctypes.byref(gradient))
            array_at(at, values.shape)[...] = values
            gradients.append(array_at(gradient.value, values.shape))
        x, dy, message = inputs.x, inputs.output_gradient, ctypes.create_string_buffer(1024)
        dx = numpy.zeros_like(x)
        pointers = [a.ctypes.data for a in (x, dy, dx)]

        def run():
            status = self.train(cells, *pointers, message) if case.trains else \
                self.forward(cells, pointers[0], message)
            if status != 0:
                raise RuntimeError(f"{case.name}: status {status}")

        def results():
            shape = (inputs.tokens // 2, case.ways * case.width)
            states = numpy.concatenate([array_at(self.states(cells, n), shape)
                                        for n in (0, 1)])
            return [states, *([dx, *gradients] if case.trains else [])]

        made = Contender(self.name, run, results, rest=lambda: self.rest(cells))
        made.kept = (x, dy, dx)
        return made


def array_at(address, shape, kind=ctypes.c_float):
    return numpy.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), shape)


class Torch:
    """Steps by sequences, which needs no transposition; sequences of several lengths packed."""

    name = "PyTorch"

    def contender(self, case, inputs):
        import torch
        torch.set_num_threads(case.threads)
        kind = {"ReLU": "RNN"}.get(case.cell, case.cell)
        more = {"nonlinearity": "relu"} if case.cell == "ReLU" else {}
        layer = getattr(torch.nn, kind)(case.width_in, case.width, case.layers,
                                        bidirectional=case.both_ways, **more)
        with torch.no_grad():
            for name, values in inputs.parameters.items():
                getattr(layer, name).copy_(torch.from_numpy(values))
        pack = self.packer(case, inputs)
        x, dy = pack(inputs.x), pack(inputs.output_gradient)
        x = with_data(x, data_of(x).requires_grad_(case.trains))
        given = [data_of(x), *(getattr(layer, name) for name in inputs.parameters)]
        left = [None]

        def forward():
            with torch.inference_mode():
                left[0] = [layer(x)[0]]

        def both():
            y = layer(x)[0]
            left[0] = [y, *torch.autograd.grad(data_of(y), given, data_of(dy))]

        def results():
            rows = [self.rows(case, x, left[0][0])]
            if case.trains:
                rows.append(self.rows(case, x, with_data(x, left[0][1])))
            return [a.detach().numpy() for a in (*rows, *left[0][2:])]

        return Contender(self.name, both if case.trains else forward, results,
                         "autograd" if case.trains else "inference_mode", 1e-3)

    @staticmethod
    def packer(case, inputs):
        """From our rows: a tensor [length][sequences], or a packed sequence."""
        import torch

        def pack(rows):
            parts = torch.from_numpy(rows).split(inputs.lengths)
            if case.shortest == case.length:
                return torch.stack(parts, 1)
            return torch.nn.utils.rnn.pack_sequence(parts, enforce_sorted=False)

        return pack

    @staticmethod
    def rows(case, like, packed):
        """Back to our rows."""
        import torch
        if case.shortest == case.length:
            return packed.transpose(0, 1).flatten(0, 1)
        padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        return torch.cat([part[:n] for part, n in zip(padded, lengths)])


def data_of(x):
    return getattr(x, "data", x) if hasattr(x, "batch_sizes") else x


def with_data(like, data):
    """The packed sequence, or the tensor, with other numbers."""
    return like._replace(data=data) if hasattr(like, "batch_sizes") else data


def measure(path, threads, seconds, full, say):
    """One row for each case: times, and how far the results are from each other."""
    from measure import alternate, disagreement
    ours, theirs, rows = Ours(path), Torch(), []
    for case in (c for count in threads for c in cases(count, full)):
        cells, inputs = ours.open(case)
        mine, other = ours.contender(case, cells, inputs), theirs.contender(case, inputs)
        mine.run(), other.run()
        difference = disagreement(mine, other)
        if difference > other.tolerance:
            raise SystemExit(f"{case.name}: PyTorch differs from libattn by {difference:.1e}")
        products = Contender("products", lambda: ours.products(cells, case.trains), None,
                             rest=mine.rest)
        alternate([mine, other, products], seconds)
        ours.destroy(cells)
        rows.append({"part": case.part, "name": case.name, "threads": case.threads,
                     "cell": case.cell, "both_ways": case.both_ways, "trains": case.trains,
                     "sequences": case.sequences, "length": case.length,
                     "shortest": case.shortest, "width_in": case.width_in,
                     "width": case.width, "layers": case.layers, "ours": mine.best,
                     "torch": other.best, "products": products.best,
                     "difference": difference})
        say(f"  {case.name}: {1e3 * mine.best:.3f} ms, PyTorch {1e3 * other.best:.3f} ms "
            f"({other.best / mine.best:.2f}×), products alone {1e3 * products.best:.3f} ms")
    return rows
