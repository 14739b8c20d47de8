"""ggml: flash_attn_ext, through the libraries of the package libggml-python."""

import ctypes
from importlib.metadata import version
from pathlib import Path

import libggml
import numpy

from measure import Contender
from ours import in_turn

F32, F16, BF16 = 0, 1, 30     # enum ggml_type
PRECISION_F32 = 10            # enum ggml_prec
DIMENSIONS = 4


class Parameters(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p),
                ("no_alloc", ctypes.c_bool)]


class Plan(ctypes.Structure):
    _fields_ = [("work_size", ctypes.c_size_t), ("work_data", ctypes.c_void_p),
                ("n_threads", ctypes.c_int), ("threadpool", ctypes.c_void_p),
                ("abort_callback", ctypes.c_void_p), ("abort_data", ctypes.c_void_p),
                ("use_ref", ctypes.c_bool)]


class PoolParameters(ctypes.Structure):
    _fields_ = [("cpumask", ctypes.c_bool * 512), ("n_threads", ctypes.c_int),
                ("prio", ctypes.c_int), ("poll", ctypes.c_uint32),
                ("strict_cpu", ctypes.c_bool), ("paused", ctypes.c_bool)]


def load():
    folder = Path(libggml.__file__).parent / "lib64"
    base, cpu = (ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
                 for name in ("libggml-base.so.0", "libggml-cpu.so.0"))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    for library, name, result, *arguments in (
            (base, "ggml_init", pointer, Parameters),
            (base, "ggml_free", None, pointer),
            (base, "ggml_new_tensor", pointer, pointer, ctypes.c_int, ctypes.c_int, pointer),
            (base, "ggml_get_data", pointer, pointer),
            (base, "ggml_nbytes", ctypes.c_size_t, pointer),
            (base, "ggml_flash_attn_ext", pointer, *[pointer] * 5, *[ctypes.c_float] * 3),
            (base, "ggml_flash_attn_ext_set_prec", None, pointer, ctypes.c_int),
            (base, "ggml_new_graph", pointer, pointer),
            (base, "ggml_build_forward_expand", None, pointer, pointer),
            (cpu, "ggml_cpu_init", None),
            (cpu, "ggml_graph_plan", Plan, pointer, ctypes.c_int, pointer),
            (cpu, "ggml_graph_compute", ctypes.c_int, pointer, pointer),
            (cpu, "ggml_threadpool_new", pointer, pointer),
            (cpu, "ggml_threadpool_pause", None, pointer),
            (base, "ggml_threadpool_params_init", None, pointer, ctypes.c_int)):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    cpu.ggml_cpu_init()
    return base, cpu


class Ggml:
    name = "ggml"
    version = version("libggml-python")

    def __init__(self):
        self.base, self.cpu = load()
        self.pools = {}

    def pool(self, threads):
        if threads not in self.pools:
            parameters = PoolParameters()
            self.base.ggml_threadpool_params_init(ctypes.byref(parameters), threads)
            self.pools[threads] = self.cpu.ggml_threadpool_new(ctypes.byref(parameters))
        return self.pools[threads]

    @property
    def isa(self):
        return "AVX-512" if self.cpu.ggml_cpu_has_avx512() else "AVX2"

    def contenders(self, case, inputs):
        if case.gradients or case.part == "additive" or case.dtype == "bf16":
            return
        kinds = [("K and V in fp16", F16)]
        if case.dtype == "fp32":
            kinds.append(("K and V in fp32", F32))
        for variant, kind in kinds:
            yield self.contender(case, inputs, variant, kind)

    def tensor(self, context, kind, sizes, x):
        array = (ctypes.c_int64 * DIMENSIONS)(*sizes)
        made = self.base.ggml_new_tensor(context, kind, DIMENSIONS, array)
        x = numpy.ascontiguousarray(x, numpy.float16 if kind == F16 else numpy.float32)
        assert self.base.ggml_nbytes(made) == x.nbytes
        ctypes.memmove(self.base.ggml_get_data(made), x.ctypes.data, x.nbytes)
        return made

    def contender(self, case, inputs, variant, kind):
        B, H, Hk, Lq, L, D = (case.B, case.H, case.key_heads, case.query_length, case.L,
                              case.D)
        rows = B * H * Lq + 2 * len(inputs.key) * B * Hk * L
        context = self.base.ggml_init(Parameters(
            (1 << 22) + 4 * D * (rows + len(inputs.key) * B * H * Lq) + 2 * Lq * L))
        query = self.tensor(context, F32, (D, Lq, H, B), inputs.query[0])
        mask = None
        if case.causal:
            hidden = numpy.triu(numpy.full((Lq, L), -numpy.inf, numpy.float16), 1)
            mask = self.tensor(context, F16, (L, Lq, 1, 1), hidden)
        runs, outputs, kept, pool = [], [], [], self.pool(case.threads)
        for key, value in zip(inputs.key, inputs.value):
            k = self.tensor(context, kind, (D, L, Hk, B), key)
            v = self.tensor(context, kind, (D, L, Hk, B), value)
            output = self.base.ggml_flash_attn_ext(context, query, k, v, mask,
                                                   D ** -0.5, 0.0, 0.0)
            self.base.ggml_flash_attn_ext_set_prec(output, PRECISION_F32)
            graph = self.base.ggml_new_graph(context)
            self.base.ggml_build_forward_expand(graph, output)
            plan = self.cpu.ggml_graph_plan(graph, case.threads, pool)
            work = ctypes.create_string_buffer(max(1, plan.work_size))
            plan.work_data = ctypes.cast(work, ctypes.c_void_p)
            runs.append(lambda g=graph, p=plan: self.cpu.ggml_graph_compute(
                g, ctypes.byref(p)))
            outputs.append(self.base.ggml_get_data(output))
            kept.append(work)

        def results():
            data = (ctypes.c_float * (B * Lq * H * D)).from_address(outputs[0])
            return [numpy.ctypeslib.as_array(data).reshape(B, Lq, H, D)
                    .transpose(0, 2, 1, 3).copy()]

        return GgmlContender(self.name, in_turn(runs), results, variant, 1e-2,
                             lambda: self.cpu.ggml_threadpool_pause(pool),
                             close=lambda: (self.base.ggml_free(context), kept.clear()))


class GgmlContender(Contender):
    """One whose memory is freed by hand."""

    def __init__(self, *arguments, close):
        super().__init__(*arguments)
        self.close = close
