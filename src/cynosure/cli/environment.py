"""What a bug report needs: versions, extras, devices, ffmpeg, caches and threads."""

from __future__ import annotations

import os
from typing import Any

from .. import __version__

__all__ = ["environment", "kernels_are_compiled", "missing_extra"]

# Extra -> the distribution and the module that tell whether it is there.
EXTRAS = {
    "torch": ("torch", "torch"),
    "models": ("transformers", "transformers"),
    "frames": ("xarray", "xarray"),
    "sweep": ("distributed", "distributed"),
    "movie": ("imageio-ffmpeg", "imageio_ffmpeg"),
    "control": ("cvxpy", "cvxpy"),
    "web": ("fastapi", "fastapi"),
    "bulk": ("pyarrow", "pyarrow"),
    "cluster": ("distributed", "distributed"),
    "bench": ("faiss-cpu", "faiss"),
}


def environment() -> dict[str, Any]:
    """Everything by look-up; only torch is imported, to see its devices."""
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, version

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    base = "numpy scipy scikit-learn numba matplotlib pillow typer tqdm safetensors".split()
    return {
        "cynosure": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: installed(name) for name in base},
        "extras": {name: installed(package) for name, (package, _) in EXTRAS.items()},
        "devices": _devices(),
        "ffmpeg": shutil.which("ffmpeg")
        or ("imageio-ffmpeg" if installed("imageio-ffmpeg") else None),
        "numba_cache": _numba_cache(),
        "blas": _blas(),
    }


def missing_extra(error: ImportError) -> str:
    """What to install, where an import failed for want of an extra; "" for any other failure."""
    if "pip install" in str(error):  # said where it was needed
        return str(error)
    wanted = (error.name or "").partition(".")[0]
    names = [extra for extra, (_, module) in EXTRAS.items() if module == wanted]
    names += ["torch"] if wanted == "torchdiffeq" else []
    names += ["web"] if wanted in ("pydantic", "starlette", "uvicorn") else []
    return f'this needs {wanted}: pip install "cynosure[{names[0]}]"' if names else ""


def _devices() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["cpu"]
    cards = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ["cpu", *cards, *(["mps"] if torch.backends.mps.is_available() else [])]


def _numba_cache() -> str:
    from numba import config

    return (
        getattr(config, "CACHE_DIR", "")
        or "beside the source (__pycache__), or the user's cache folder"
    )


_KERNELS = "cynosure.engine.kernels."


def kernels_are_compiled() -> bool:
    """True where numba has stored a kernel of this package; the first run compiles them all.

    Nothing is imported for it: where the kernels' modules are not loaded yet, numba's own folder
    is looked for where it would be. A cache elsewhere reads as none, which only says too much.
    """
    import sys
    from pathlib import Path

    kernels = Path(__file__).parent.parent / "engine" / "kernels"
    elsewhere = os.environ.get("NUMBA_CACHE_DIR")
    folders = {Path(elsewhere) if elsewhere else kernels / "__pycache__"}
    for name, module in sys.modules.copy().items():  # another thread may be importing
        for kernel in list(vars(module).values()) if name.startswith(_KERNELS) else ():
            stored = getattr(getattr(kernel, "stats", None), "cache_path", None)
            folders |= {Path(stored)} if isinstance(stored, str) else set()
    mark = f".py{sys.version_info[0]}{sys.version_info[1]}"
    return any(mark in path.name for folder in folders for path in folder.rglob("*.nbi"))


def _blas() -> dict[str, Any]:
    import scipy.linalg  # noqa: F401  (the library must be loaded to be asked)
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    return {
        f"{lib['internal_api']} {lib['version'] or ''}".strip(): f"{lib['num_threads']} threads"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
