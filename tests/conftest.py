"""Triton kernels are interpreted in tests: they need no GPU then. It has to be set before triton is first imported.

TRITON_INTERPRET=0 runs the same tests on a GPU.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
