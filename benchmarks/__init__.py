"""Benchmarks: processor time, memory and quality figures. Tests count calls instead and measure no time."""
