"""Compiles kernels ahead of time, for GPUs that need not be there, and reads what they take of the chip.

It needs the process to run without TRITON_INTERPRET, under which triton makes no compilable kernels.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

# Of this package, each with `compiled_variants()`.
KERNEL_MODULES: tuple[str, ...] = (
    "attention",
    "activate",
    "choice",
    "norm",
    "quantize",
    "rope",
    "sampling",
)
# Shared memory of one block at most, by compute capability (CUDA C++ Programming Guide, technical specifications).
SHARED_LIMITS = {80: 163 << 10, 90: 227 << 10}


@dataclass(frozen=True)
class Variant:
    """A kernel with all that is fixed when it is compiled.

    config: says in a few words what distinguishes it. signature: each argument that is no constexpr, in order, in
    the notation of `triton.tools.compile`: "*bf16:16" is a pointer to bfloat16 aligned to 16 bytes, "i32:16" an
    integer that is a multiple of 16. constants: the constexpr arguments.
    """

    kernel: Any
    config: str
    signature: Mapping[str, str]
    constants: Mapping[str, object]
    num_warps: int = 4
    num_stages: int = 2

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes: registers of a thread; local: bytes of a thread's local memory, where spilled
    registers go; shared: bytes of a block's shared memory."""

    registers: int
    local: int
    shared: int


def variants() -> Iterator[tuple[str, Variant]]:
    """Those of every kernel of this package, with the names of their modules."""
    for name in KERNEL_MODULES:
        for variant in import_module(f"engine.kernels.{name}").compiled_variants():
            yield name, variant


def compile_for(variant: Variant, capability: int) -> Resources:
    """Compile for a compute capability, 80 or 90, and read the registers and memory from the binary.

    Raises RuntimeError if the kernels of this process are interpreted.
    """
    if not isinstance(variant.kernel, triton.JITFunction):
        raise RuntimeError(
            "TRITON_INTERPRET is set, so there is nothing to compile; unset it and start again."
        )
    names = variant.kernel.arg_names
    signature = dict.fromkeys(names, "constexpr")
    attributes: dict[tuple[int], list[list[object]]] = {}
    for name, spec in variant.signature.items():
        signature[name], _, divisor = spec.partition(":")
        if divisor:
            attributes[(names.index(name),)] = [["tt.divisibility", int(divisor)]]
    constants = {name: variant.constants[name] for name in names if name in variant.constants}
    compiled = triton.compile(
        ASTSource(variant.kernel, signature, constants, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={
            "num_warps": variant.num_warps,
            "num_stages": variant.num_stages,
            "enable_fp_fusion": True,
        },
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def figure(name: str) -> int:
        return max(int(n) for n in re.findall(rf"\b{name}:(\d+)", usage))

    # Spilled registers are in the stack frame, arrays that are indexed at run time in the local memory.
    return Resources(figure("REG"), figure("STACK") + figure("LOCAL"), compiled.metadata.shared)
