"""Keeps numpy's matrix products on one thread.

OpenBLAS, which numpy's wheels carry, starts a thread for each core and lets them spin while they wait: on a machine
with other work one question took 96 ms instead of 5, and passages came a seventh as fast for the CPU time spent.
numpy offers no switch after its import, so the library is asked itself. Somebody who sets OPENBLAS_NUM_THREADS or
OMP_NUM_THREADS knows better and is left alone.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


@functools.cache
def use_one_thread() -> bool:
    """True when a library was found and told. False where numpy uses another one (Apple's, a distribution's), or
    where the environment decides."""
    if os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS"):
        return False
    import numpy as np

    package = Path(np.__file__).parent
    told = False
    # Wheels keep the library beside the package (Linux, Windows) or inside it (macOS).
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")) if folder.is_dir() else ():
            try:
                library = ctypes.CDLL(str(path))  # loaded already: this is the same one
            except OSError:
                continue
            for name in SETTERS:
                setter = getattr(library, name, None)
                if setter is not None:
                    setter(ctypes.c_int(1))
                    told = True
                    break
    return told
