"""opened(): model and tokenizer from a folder, the hub, or memory; offline and without pickle."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from logging import CRITICAL
from pathlib import Path
from typing import Any

from ..._files.bounded import parsed_json, read_bytes
from .memory import require, told

OTHERS = (".onnx", ".gguf", ".h5", ".msgpack", ".tflite", ".ot", ".npz")
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
TOKENIZERS = ("tokenizer.", "vocab.", "spiece.", "sentencepiece.")
HUB_SECONDS = 5.0  # to wait for an answer of the hub
_SMALLER = "take a smaller model, or dtype='bfloat16'"
_WRONG = "the file does not belong to this config.json"
LARGEST_CONFIG = 16 << 20  # bytes of config.json
_MOST_LAYERS = 10_000  # that share their weights
UNUSED = ("pooler",)  # weights that may be missing: they come after the last layer


def opened(
    source: Any,
    readers: Mapping[str, str],
    tokenizer: Any,
    revision: str | None,
    local_files_only: bool,
    device: str,
    dtype: Any,
    allow_pickle: bool,
) -> tuple[Any, Any, str]:
    """The bare model, its tokenizer or image processor, and its name; see `load_transformer`.

    `readers` says for each supported `model_type` what it takes: a tokenizer or an image processor.
    """
    if hasattr(source, "config") and hasattr(source, "base_model"):
        own = tokenizer or _own_tokenizer(source, readers)
        return _finite(source.base_model, readers, own, _name(source))
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            "source: expected a folder, a hub id or a transformers model, "
            f"got {type(source).__name__}"
        )
    if find_spec("transformers") is None:
        raise ImportError('reading transformers needs: pip install "cynosure[models]"')
    folder = Path(source).expanduser()
    local = folder.is_dir()
    if local:
        _inspect(folder, readers, allow_pickle)
    elif isinstance(source, os.PathLike) or folder.exists() or _looks_like_a_path(str(source)):
        what = "a file and no folder" if folder.is_file() else "no such folder"
        raise ValueError(f"{source}: {what}; expected one with config.json and model.safetensors")
    where = str(folder) if local else str(source)
    offline = local or local_files_only
    options: dict[str, Any] = {"revision": revision or "main", "local_files_only": offline}
    silent = "" if offline else _silence(where, options["revision"])
    offline = options["local_files_only"] = offline or bool(silent)
    with _hub(offline):
        try:
            config = _read(where, "config", options, allow_pickle)
        except ValueError as error:
            if not silent:
                raise
            raise ValueError(
                f"{where}: no folder of that name, and the Hugging Face hub did not answer "
                f"({silent}); what was fetched before has no such model either"
            ) from error
        _family(config.model_type, readers, where)
        weights = {**options, "dtype": _dtype(dtype)}
        if local:
            _deep(folder, config)
            disk = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
            stored = int(getattr(getattr(config, "dtype", None), "itemsize", 4))
            needed = disk * weights["dtype"].itemsize // stored
            require(needed, f"{where}: the model", _SMALLER)
        model = _read(where, "model", weights, allow_pickle)
        reader = readers[config.model_type]
        # where there is no file of one, transformers makes up a tokenizer that knows no word
        beside = TOKENIZERS if reader == "tokenizer" else PROCESSORS
        made_up = local and not any(path.name.startswith(beside) for path in folder.iterdir())
        if tokenizer is None and not made_up:
            tokenizer = _read(where, reader, options, allow_pickle)
            longest = getattr(tokenizer, "model_max_length", 1)
            if not isinstance(longest, int | float) or not longest >= 1:
                given = f"model_max_length {longest!r}"
                raise ValueError(f"{where}: tokenizer_config.json has {given}, expected at least 1")
    try:
        with told(_SMALLER):
            model = model.to(device)
    except (RuntimeError, AssertionError) as error:  # no such device, or a torch without it
        raise ValueError(f"device: {device!r} cannot be used ({str(error).splitlines()[0]})") from (
            None
        )
    return _finite(model, readers, tokenizer, folder.name if local else where)


def _finite(
    model: Any, readers: Mapping[str, str], tokenizer: Any, name: str
) -> tuple[Any, Any, str]:
    """The three of `opened`, unless a weight is NaN or infinite."""
    for parameter, values in model.named_parameters():
        if not bool(values.sum().isfinite() or values.isfinite().all()):  # a sum is quick
            wrong = int((~values.isfinite()).sum())
            raise ValueError(
                f"{name}: {wrong} of {values.numel()} numbers of {parameter} are NaN or infinite; "
                "the file is damaged, or training went wrong: fetch or train it again"
            )
    _family(model.config.model_type, readers, name)
    return model, tokenizer, name


def _family(kind: str, readers: Mapping[str, str], where: str) -> None:
    if kind not in readers:
        raise ValueError(
            f"{where}: models of type {kind!r} are not supported; supported are "
            f"{', '.join(sorted(readers))}. Needed is a file of cynosure/pretrained/families that "
            f"says where a block of {kind!r} has its attention, W_Q, W_K, W_V, W_O and norm "
            "(docs/extending.md)"
        )


def _deep(folder: Path, config: Any) -> None:
    """Refuse a number of layers that the weights cannot have, before any layer is made."""
    from safetensors import SafetensorError, safe_open

    tensors = 0
    for path in folder.glob("*.safetensors"):
        with contextlib.suppress(SafetensorError), safe_open(path, "np") as file:
            tensors += len(file.keys())
    depth, groups = (getattr(config, f"num_hidden_{x}", None) for x in ("layers", "groups"))
    most = _MOST_LAYERS if groups else tensors or _MOST_LAYERS
    if isinstance(depth, int) and depth > most:
        said = f"config.json has num_hidden_layers {depth}"
        raise ValueError(f"{folder}: {said} and the weights are {tensors} arrays; {_WRONG}")


def _inspect(folder: Path, readers: Mapping[str, str], pickles: bool) -> None:
    """What can be said about a folder before anything in it is opened."""
    files = sorted(path.name for path in folder.iterdir())
    config = folder / "config.json"
    if not config.is_file():
        raise ValueError(
            f"{folder}: no config.json; expected a folder saved by save_pretrained, found "
            f"{', '.join(files[:8]) or 'nothing'}"
        )
    try:
        found = parsed_json(read_bytes(config, LARGEST_CONFIG), str(config))
    except ValueError as error:
        raise ValueError(f"{error}; damaged or cut short: fetch it again") from None
    if not isinstance(found, dict) or "model_type" not in found:
        raise ValueError(
            f"{config}: not the configuration of a model (no model_type in it); "
            f"supported are {', '.join(readers)}"
        )
    _family(str(found["model_type"]), readers, str(folder))
    if wrong := [name for name, value in found.items() if value != value]:
        raise ValueError(f"{config}: {wrong[0]} is NaN; expected a number")
    if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in files):
        return
    pickled = [name for name in files if name.endswith(PICKLED)]
    if not pickled:
        other = [name for name in files if name.endswith(OTHERS)]
        found_ = f", got {', '.join(other[:4])}, which are not read" if other else ""
        raise ValueError(
            f"{folder}: no weights; expected model.safetensors{found_}; save them with "
            "model.save_pretrained, or fetch the model's safetensors from the hub"
        )
    if not pickles:
        raise ValueError(
            f"{folder}: the weights are pickled ({', '.join(pickled)}) and could run code when "
            "read; if you trust them pass allow_pickle=True (--allow-pickle), or convert them "
            "once: transformers."
            f"AutoModel.from_pretrained({folder.name!r}).save_pretrained({folder.name + '-safe'!r})"
        )


def _looks_like_a_path(source: str) -> bool:
    """A hub id is `name` or `owner/name`; anything else can only be a path."""
    parts = source.split("/")
    return source.startswith((".", "~", os.sep)) or len(parts) > 2 or not all(parts)


def _silence(name: str, revision: str) -> str:
    """Why the hub does not answer, asked once and for HUB_SECONDS at most; "" when it does.

    A refusal is an answer. A look-up of the host can hang beyond any time-out: it is left behind
    in its own thread.
    """
    from threading import Thread

    import huggingface_hub
    import huggingface_hub.constants as hub
    from huggingface_hub.errors import HfHubHTTPError

    if hub.HF_HUB_OFFLINE:
        return ""
    outcome = [f"nothing within {HUB_SECONDS:g} s"]

    def ask() -> None:
        said = ""
        try:
            huggingface_hub.model_info(name, revision=revision, timeout=HUB_SECONDS)
        except (HfHubHTTPError, ValueError):
            pass
        except Exception as error:  # of the network, by whichever library asks
            said = " ".join(str(error).split()) or type(error).__name__
        outcome[0] = said

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_SECONDS + 1)
    return outcome[0]


@contextlib.contextmanager
def _hub(offline: bool) -> Iterator[None]:
    """No request leaves while `offline`, none to convert weights; no bars or tables are printed."""
    import huggingface_hub.constants as hub
    from transformers.utils import logging

    forced = {"DISABLE_SAFETENSORS_CONVERSION": "1", **({"HF_HUB_OFFLINE": "1"} if offline else {})}
    before = {name: os.environ.get(name) for name in forced}
    was_offline = hub.HF_HUB_OFFLINE  # read from the environment only once, at import
    os.environ.update(forced)
    hub.HF_HUB_OFFLINE = was_offline or offline
    bars, told_from = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(CRITICAL)
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()
        logging.set_verbosity(told_from)
        hub.HF_HUB_OFFLINE = was_offline
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _read(where: str, what: str, options: dict[str, Any], pickles: bool) -> Any:
    """Config, model or tokenizer by the transformers library; its errors in one sentence."""
    import transformers
    from safetensors import SafetensorError

    options = {**options, "trust_remote_code": False}
    try:
        if what == "config":
            return transformers.AutoConfig.from_pretrained(where, **options)
        if what == "tokenizer":
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
            if len(tokenizer) <= len(tokenizer.all_special_tokens):
                raise ValueError("Its vocabulary is empty.")
            return tokenizer
        if what == "image processor":
            return transformers.AutoImageProcessor.from_pretrained(where, **options)
        with told(_SMALLER):
            model, info = transformers.AutoModel.from_pretrained(
                where,
                attn_implementation="eager",
                use_safetensors=None if pickles else True,
                output_loading_info=True,
                **options,
            )
    except SafetensorError as error:
        raise ValueError(
            f"{where}: the safetensors file is damaged or cut short ({error}); fetch it again"
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # damaged files make the library fail in any way, none of it ours
        hint = {
            "tokenizer": " Pass tokenizer=, or add tokenizer.json to the folder.",
            "image processor": " Pass tokenizer=, or take preprocessor_config.json out.",
            "model": " Its config.json is damaged, or not that of these weights.",
            "config": " Its config.json is damaged.",
        }
        message = " ".join(str(error).split("\n\n")[0].split())
        if isinstance(error, OSError):  # a file that is not there, or not on the hub
            message = str(error).strip().split("\n")[0]
            hint["config"] = ""
            hint["model"] = (
                "" if pickles else " Only safetensors are read unless allow_pickle=True."
            )
        elif "ignore_mismatched_sizes" in message:
            raise ValueError(f"{where}: weights of other shapes; {_WRONG}") from None
        else:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            message = f"{kind}{message.rstrip('.')}."
        if what == "model" and (broken := _broken_pickle(where, pickles)):
            raise ValueError(f"{broken}: damaged or cut short; fetch it again") from error
        raise ValueError(f"{where}: no {what} could be read. {message}{hint[what]}") from error
    _fits(model, info, where)
    return model.eval()


def _broken_pickle(where: str, pickles: bool) -> Path | None:
    """The pickled checkpoint of a folder that cannot be read by itself; no code of it runs."""
    import torch

    folder = Path(where)
    if not pickles or not folder.is_dir() or any(folder.glob("*.safetensors")):
        return None
    for path in sorted(p for p in folder.iterdir() if p.name.endswith(PICKLED)):
        try:
            torch.load(path, map_location="meta", weights_only=True)
        except Exception:  # whatever damaged bytes make of it
            return path
    return None


def _fits(model: Any, info: Any, where: str) -> None:
    """Refuse weights that are missing, which transformers would draw at random, and those of layers
    that are not there, which it would leave out."""
    missing = [key for key in info["missing_keys"] if not any(part in key for part in UNUSED)]
    if missing:
        raise ValueError(
            f"{where}: {len(missing)} weights are missing, among them {min(missing)}; {_WRONG}"
        )
    known = tuple(model.state_dict())
    for key in sorted(info["unexpected_keys"]):  # a task's own are welcome, not those of a layer
        if re.search(r"\.\d+\.", key) and re.sub(r"\.\d+\.", ".0.", key, count=1).endswith(known):
            raise ValueError(
                f"{where}: {key} is of a layer that config.json does not have; {_WRONG}"
            )


def _dtype(dtype: Any) -> Any:
    import torch

    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    kind = torch.float32 if dtype is None else kind
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise ValueError(f"dtype: expected a float type such as 'float32', got {dtype!r}")
    return kind


def _name(model: Any) -> str:
    return str(getattr(model, "name_or_path", "") or model.config.model_type)


def _own_tokenizer(model: Any, readers: Mapping[str, str]) -> Any:
    """The tokenizer beside a loaded model's weights, if they came from a folder or the cache."""
    origin = str(getattr(model, "name_or_path", ""))
    if not origin:
        return None
    _family(model.config.model_type, readers, origin)
    with _hub(True), contextlib.suppress(ValueError):
        reader = readers[model.config.model_type]
        return _read(origin, reader, {"local_files_only": True}, False)
    return None
