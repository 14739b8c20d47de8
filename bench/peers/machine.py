"""The machine, the compilers and the versions that figures belong to."""

import os
import platform
import re
import subprocess
from pathlib import Path


def output(*command, cwd=None):
    try:
        return subprocess.run(command, cwd=cwd, check=True, capture_output=True,
                              text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor():
    """What lscpu says, by name."""
    rows = (line.split(":", 1) for line in output("lscpu").splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in rows}


def sets_of(flags):
    """The instruction sets that matter here."""
    wanted = {"avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "avx512f": "AVX-512 F",
              "avx512dq": "DQ", "avx512bw": "BW", "avx512vl": "VL", "avx512_bf16": "BF16",
              "avx512_vnni": "VNNI", "avx512_fp16": "FP16", "amx_bf16": "AMX",
              "asimd": "NEON", "sve": "SVE"}
    return ", ".join(name for flag, name in wanted.items() if flag in flags)


def describe(root, build):
    cpu = processor()
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    compiler = re.search(r'"linker_id": |"full_version": "([^"]*)"',
                         output("meson", "introspect", "--compilers", str(build)))
    release = re.search(r'PRETTY_NAME="(.*)"', Path("/etc/os-release").read_text())
    virtual = f", virtual ({cpu['Hypervisor vendor']})" if "Hypervisor vendor" in cpu else ""
    return {
        "processor": cpu.get("Model name", platform.processor()) + virtual +
        f", family {cpu.get('CPU family', '?')} model {cpu.get('Model', '?')}",
        "processors": f"{os.cpu_count()} ({cpu.get('Thread(s) per core', '?')} to a core)",
        "caches": ", ".join(f"{name} {cpu[name + ' cache']}"
                            for name in ("L1d", "L2", "L3") if name + " cache" in cpu),
        "instruction sets": sets_of(cpu.get("Flags", "").split()),
        "memory": f"{int(memory.group(1)) / (1 << 20):.0f} GiB",
        "system": f"{release.group(1)}, Linux {platform.release()}",
        "compiler": (compiler.group(1) if compiler and compiler.group(1) else
                     output("cc", "--version").splitlines()[0]),
    }


def commit(root):
    described = output("git", "log", "-1", "--format=%h %cs", cwd=root)
    changed = output("git", "status", "--porcelain", "--untracked-files=no", cwd=root)
    changed = [line for line in changed.splitlines() if "docs/" not in line]
    return described + (" with changes" if changed else "")
