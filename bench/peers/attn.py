"""libattn through ctypes.  Structures and constants are read from the public headers, so
they cannot drift from them; tests/bench compares their sizes with the compiler's."""

import ctypes
import re
from pathlib import Path

SCALARS = {
    "float": ctypes.c_float, "double": ctypes.c_double, "bool": ctypes.c_bool,
    "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
    "int": ctypes.c_int, "uint8_t": ctypes.c_uint8,
}


def constants_of(text):
    """{"ATTN_OK": 0, …}: the members of every enum."""
    found = {}
    for body in re.findall(r"enum \w*\s*\{(.*?)\}", text, re.S):
        value = -1
        for member in filter(str.strip, body.split(",")):
            name, _, given = (part.strip() for part in member.partition("="))
            value = found[given] if given in found else int(given, 0) if given else value + 1
            found[name] = value
    return found


def field_of(declarator, base):
    """("stride", c_int64 * 4) from "stride[4]" and the type before it."""
    name = re.search(r"\w+", declarator).group()
    if "*" in declarator:
        return name, ctypes.c_void_p
    for size in reversed(re.findall(r"\[(\d+)\]", declarator)):
        base = base * int(size)
    return name, base


def structures_of(text):
    """{"attn_shape": a ctypes.Structure, …}, in the order of the header."""
    types = dict(SCALARS)
    types.update((name, ctypes.c_int) for name in re.findall(r"typedef enum (\w+)", text))
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.S):
        fields = []
        for declaration in filter(str.strip, body.split(";")):
            declaration = declaration.replace("const ", "").strip()
            base, _, declarators = declaration.partition(" ")
            pointed = types.get(base, ctypes.c_void_p)
            if base.endswith("*") or ("*" in declarators and base not in types):
                pointed = ctypes.c_void_p
            fields += [field_of(part, pointed) for part in declarators.split(",")]
        found[name] = types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def header_text(root):
    text = "".join(path.read_text() for path in sorted(Path(root, "include/attn").glob("*.h"),
                                                       key=lambda p: p.name != "attention.h"))
    return re.sub(r"/\*.*?\*/|^\s*#.*?$", "", text, flags=re.S | re.M)


class Library:
    """libattn.so, its structures and constants by name."""

    def __init__(self, root, path):
        text = header_text(root)
        self.structures = structures_of(text)
        self.constants = constants_of(text)
        self.c = ctypes.CDLL(str(path))
        self.c.attn_context_isa.restype = ctypes.c_char_p
        self.c.attn_context_message.restype = ctypes.c_char_p

    def new(self, name, **members):
        made = self.structures[name]()
        for member, value in members.items():
            setattr(made, member, value)
        return made


class Context:
    """An attn_context.  pool is (parallel_for, pool) for more than one thread."""

    def __init__(self, library, threads=1, isa=None, pool=None):
        self.library = library
        options = library.new("attn_context_options", threads=threads)
        name = ctypes.create_string_buffer(isa.encode()) if isa else None
        options.isa = ctypes.cast(name, ctypes.c_void_p) if isa else None
        if pool:
            options.parallel_for, options.pool = pool
        self.handle = ctypes.c_void_p()
        status = library.c.attn_context_create(ctypes.byref(self.handle),
                                               ctypes.byref(options))
        if status != 0:
            raise RuntimeError(f"attn_context_create gives {status}")
        self.isa = library.c.attn_context_isa(self.handle).decode()

    def close(self):
        self.library.c.attn_context_destroy(self.handle)

    def call(self, name, *structures):
        """A function without arguments that calls attn_NAME and checks its status."""
        function = getattr(self.library.c, "attn_" + name)
        arguments = [self.handle, *map(ctypes.byref, structures)]

        def run():
            if function(*arguments) != 0:
                raise RuntimeError(self.library.c.attn_context_message(self.handle).decode())

        run.kept = structures
        return run

    def tensor(self, array, kind="attn_input"):
        """A 4-dimensional numpy array as attn_input or attn_output.  bfloat16, which numpy
        lacks, is a (uint16 array, "ATTN_BF16") pair."""
        array, named = array if isinstance(array, tuple) else (array, None)
        made = self.library.new(kind, data=array.ctypes.data)
        made.stride[:] = [step // array.itemsize for step in array.strides]
        named = named or {"float32": "ATTN_F32", "float16": "ATTN_F16"}[array.dtype.name]
        if named != "ATTN_F32":
            made.type = self.library.constants[named]
        return made

    def problem(self, query, key, value, output, lse=None, statistics=None, additive=None,
                **options):
        """shape, tensors, options: what attn_forward is given, and the arrays kept alive."""
        new, array = self.library.new, lambda x: x[0] if isinstance(x, tuple) else x
        B, H, Lq, D = array(query).shape
        _, Hk, Lk, Dv = array(value).shape
        shape = new("attn_shape", B=B, H=H, Hk=Hk, Lq=Lq, Lk=Lk, D=D, Dv=Dv)
        tensors = new("attn_tensors", query=self.tensor(query), key=self.tensor(key),
                      value=self.tensor(value), output=self.tensor(output, "attn_output"))
        tensors.arrays = query, key, value, output, lse, statistics, additive
        if lse is not None:
            tensors.lse = lse.ctypes.data
        for name, wanted in (statistics or {}).items():
            setattr(tensors.statistics, name,
                    wanted if isinstance(wanted, int) else wanted.ctypes.data)
        given = new("attn_options")
        self.library.c.attn_options_init(ctypes.byref(given), ctypes.byref(shape))
        if additive is not None:
            given.score, given.scale = self.library.constants["ATTN_SCORE_ADDITIVE"], 1.0
            given.additive = additive.ctypes.data
        for name, wanted in options.items():
            setattr(given, name, wanted)
        return shape, tensors, given

    def forward(self, *arrays, **options):
        return self.call("forward", *self.problem(*arrays, **options))

    def backward(self, problem, output_gradient, query, key, value, additive=None):
        """After a forward of the same problem; the others get the gradients."""
        gradients = self.library.new(
            "attn_gradients", output=self.tensor(output_gradient),
            query=self.tensor(query, "attn_output"), key=self.tensor(key, "attn_output"),
            value=self.tensor(value, "attn_output"))
        gradients.arrays = output_gradient, query, key, value, additive
        if additive is not None:
            gradients.additive = additive.ctypes.data
        return self.call("backward", *problem, gradients)
