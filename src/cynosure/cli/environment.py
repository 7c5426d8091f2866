"""What a bug report needs: versions, extras, devices, caches and threads."""

from __future__ import annotations

import os
from typing import Any

from .. import __version__

# Extra -> the distribution and the module that tell whether it is there.
EXTRAS = {
    "torch": ("torch", "torch"),
    "models": ("transformers", "transformers"),
    "web": ("fastapi", "fastapi"),
    "control": ("cvxpy", "cvxpy"),
    "notebook": ("anywidget", "anywidget"),
    "scale": ("zarr", "zarr"),
}
# Modules of an extra beside the one that tells.
BESIDE = {
    "web": {"pydantic", "starlette", "uvicorn"},
    "scale": {"dask", "distributed", "pandas", "pyarrow", "xarray"},
}


def environment() -> dict[str, Any]:
    """Everything by look-up; only torch is imported, to see its devices."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import scipy.linalg  # noqa: F401  (the library must be loaded to be asked)
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    from .._compiled import HOMES, stored_in

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    kernels = [str(folder) for home in HOMES if (folder := stored_in(home)) is not None]
    base = "numpy scipy scikit-learn numba matplotlib pillow typer tqdm safetensors".split()
    return {
        "cynosure": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: installed(name) for name in base},
        "extras": {name: installed(package) for name, (package, _) in EXTRAS.items()},
        "devices": _devices(),
        "kernels": ", ".join(kernels) or "nowhere: no folder can be written to",
        "blas": {
            f"{lib['internal_api']} {lib['version'] or ''}".strip(): f"{lib['num_threads']} threads"
            for lib in threadpool_info()
            if lib["user_api"] == "blas"
        },
    }


def missing_extra(error: ImportError) -> str:
    """What to install, where an import failed for want of an extra; "" for any other failure."""
    if "pip install" in str(error):  # said where it was needed
        return str(error)
    wanted = (error.name or "").partition(".")[0]
    names = [
        extra
        for extra, (_, module) in EXTRAS.items()
        if wanted == module or wanted in BESIDE.get(extra, ())
    ]
    return f'this needs {wanted}: pip install "cynosure[{names[0]}]"' if names else ""


def _devices() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["cpu"]
    cards = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ["cpu", *cards, *(["mps"] if torch.backends.mps.is_available() else [])]
