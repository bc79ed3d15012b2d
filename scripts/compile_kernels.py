"""Compile the engine's Triton kernels for GPUs that need not be there, and print what they take of the chip.

    python scripts/compile_kernels.py [--only WORD] [--json]

Shared memory is that of a block, registers are those of a thread. Exit status 1 if a kernel spills or wants more
shared memory than the chip gives a block.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"  # interpreted kernels cannot be compiled
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.kernels.aot import SHARED_LIMITS, compile_for, variants


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="kernels whose name or configuration has this")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead")
    args = parser.parse_args()
    if not args.json:
        print("| kernel | configuration | target | registers | spilled, bytes | shared, KB |")
        print("| --- | --- | --- | --- | --- | --- |")
    bad = 0
    for module, variant in variants():
        if args.only not in f"{module} {variant.name} {variant.config}":
            continue
        for capability, limit in SHARED_LIMITS.items():
            found = compile_for(variant, capability)
            fits = found.local == 0 and found.shared <= limit
            bad += not fits
            if args.json:
                row = {"module": module, "kernel": variant.name, "config": variant.config}
                row |= {"capability": capability, "fits": fits, **vars(found)}
                print(json.dumps(row), flush=True)
            else:
                print(
                    f"| `{variant.name}` | {variant.config} | sm_{capability} | {found.registers} | "
                    f"{found.local} | {found.shared / 1024:.1f} |{'' if fits else ' does not fit'}",
                    flush=True,
                )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
