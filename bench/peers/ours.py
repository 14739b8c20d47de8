"""libattn as a contender."""

import ctypes

import numpy

import attn
from cases import widened
from measure import TOLERANCE, Contender


class Ours:
    """The library, with a context for each number of threads and instruction set."""

    name = "libattn"

    def __init__(self, root, library, pool):
        self.library = attn.Library(root, library)
        self.pool_library = ctypes.CDLL(str(pool)) if pool else None
        self.contexts, self.pools = {}, {}

    def context(self, threads, isa=None):
        if (threads, isa) not in self.contexts:
            self.contexts[threads, isa] = attn.Context(self.library, threads, isa,
                                                       self.make_pool(threads))
        return self.contexts[threads, isa]

    def has(self, isa):
        """Whether that instruction set is another than the best."""
        try:
            return self.context(1, isa).isa != self.context(1).isa
        except RuntimeError:
            return False

    def make_pool(self, threads):
        if threads == 1:
            return None
        create = self.pool_library.pthreadpool_create
        create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        if threads not in self.pools:
            self.pools[threads] = ctypes.c_void_p(create(threads))
        run = ctypes.cast(self.pool_library.run_on_pool, ctypes.c_void_p)
        return run.value, self.pools[threads]

    def rest(self, threads):
        if threads > 1:
            self.pool_library.rest_pool(self.pools[threads])

    def contenders(self, case, inputs, isa=None):
        context = self.context(case.threads, isa)
        typed = (lambda x: (x, "ATTN_BF16")) if case.dtype == "bf16" else (lambda x: x)
        query, gradients = inputs.query[0], case.gradients
        output = numpy.zeros_like(query)
        lse = numpy.zeros(query.shape[:3], numpy.float32) if gradients else None
        problems = [context.problem(typed(query), typed(key), typed(value), typed(output),
                                    lse=lse, causal=case.causal, additive=inputs.additive)
                    for key, value in zip(inputs.key, inputs.value)]
        calls = [context.call("forward", *problem) for problem in problems]
        left = [output]
        run = in_turn(calls)
        if gradients:
            left = [numpy.zeros_like(x) for x in (query, inputs.key[0], inputs.value[0],
                                                  inputs.additive) if x is not None]
            backward = context.backward(problems[0], inputs.output_gradient, *left)
            calls[0]()
            run = backward if gradients == "backward" else in_row(calls[0], backward)
        yield Contender(self.name, run, lambda: [widened(x) for x in left],
                        context.isa, TOLERANCE[case.dtype],
                        rest=lambda: self.rest(case.threads))


def in_turn(calls):
    """Each call is that of the next set."""
    if len(calls) == 1:
        return calls[0]
    place = [0]

    def run():
        calls[place[0]]()
        place[0] = (place[0] + 1) % len(calls)

    return run


def in_row(*calls):
    def run():
        for call in calls:
            call()

    return run
