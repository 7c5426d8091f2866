"""What a bug report needs: versions, extras, devices, ffmpeg, caches and threads."""

from __future__ import annotations

import os
from typing import Any

from .. import __version__

__all__ = ["environment"]


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
    extras = {
        "torch": "torch", "models": "transformers", "movie": "imageio-ffmpeg",
        "control": "cvxpy", "bench": "faiss-cpu",
    }  # fmt: skip
    return {
        "cynosure": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: installed(name) for name in base},
        "extras": {name: installed(package) for name, package in extras.items()},
        "devices": _devices(),
        "ffmpeg": shutil.which("ffmpeg")
        or ("imageio-ffmpeg" if installed("imageio-ffmpeg") else None),
        "numba_cache": _numba_cache(),
        "blas": _blas(),
    }


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


def _blas() -> dict[str, Any]:
    import scipy.linalg  # noqa: F401  (the library must be loaded to be asked)
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    return {
        f"{lib['internal_api']} {lib['version'] or ''}".strip(): f"{lib['num_threads']} threads"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
