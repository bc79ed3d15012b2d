"""The sections of scripts/bench_engine.py: what each measures, and how it is told."""
