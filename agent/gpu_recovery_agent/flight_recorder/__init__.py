"""Reads dumps of PyTorch's flight recorder and makes reports for a diagnosis of them.

Only the standard library is used, without PyTorch, and no code of a dump is run. The agent's package, the wheel for
images of trainings and the command line share these modules.

- pickled.py     a reader of pickles that admits plain values only
- dump.py        a dump: its process groups, and what each of them waits for
- rank_text.py   ranks as text of ranges
- dump_files.py  files of dumps in a folder
- reports.py     reports of a dump
"""
