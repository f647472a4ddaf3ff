#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""probe_uring.py - exit code 0 when this machine lets this process make an io_uring, else 1."""
import ctypes
import sys

IO_URING_SETUP = 425

library = ctypes.CDLL(None, use_errno=True)
parameters = (ctypes.c_char * 120)()
descriptor = library.syscall(IO_URING_SETUP, 4, ctypes.byref(parameters))
sys.exit(0 if descriptor >= 0 else 1)
