"""Triton kernels of the engine, for CUDA. Each stands beside its twin: the same function in plain torch.

A kernel module imports triton, so the engine imports it only where it is used. It offers the kernels' launchers,
their twins (`..._twin`), and `compiled_variants()` for `engine.kernels.aot`, which lists the modules.
"""
