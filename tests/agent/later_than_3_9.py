"""Take from this Python what Python 3.9 lacks. The text runs in front of a program, see `test_wheels.py`.

The modules of the standard library that the program needs are imported before: they may use what is taken.
"""

import atexit
import builtins
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import datetime
import enum
import hashlib
import inspect
import itertools
import json
import logging
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import urllib.request
import uuid
import warnings
import weakref

LOADED = (atexit, concurrent.futures, ctypes, logging, random, re, shutil, signal, socket, tempfile, threading)
LOADED += (hashlib, json, urllib.request, uuid, warnings, weakref)


def _take(owner, *names):
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)


_take(datetime, "UTC")
_take(enum, "StrEnum", "verify")  # the module itself uses its other new names for each class
_take(contextlib, "aclosing", "chdir")
_take(itertools, "pairwise", "batched")
_take(builtins, "aiter", "anext", "ExceptionGroup", "BaseExceptionGroup")
_take(inspect, "get_annotations")
sys.modules["tomllib"] = None
_zip, _dataclass = builtins.zip, dataclasses.dataclass


def _zip_of_3_9(*iterables):
    return _zip(*iterables)


def _dataclass_of_3_9(cls=None, /, *, init=True, repr=True, eq=True, order=False, unsafe_hash=False, frozen=False):
    return _dataclass(cls, init=init, repr=repr, eq=eq, order=order, unsafe_hash=unsafe_hash, frozen=frozen)


builtins.zip, dataclasses.dataclass = _zip_of_3_9, _dataclass_of_3_9
