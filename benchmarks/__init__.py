"""Benchmarks: figures of time, memory and quality. Tests count calls and measure no time."""
