"""load_transformer(): a model from a folder, the hub, or memory; offline and without pickle."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from logging import CRITICAL
from pathlib import Path
from typing import Any

from .._files.bounded import parsed_json, read_bytes
from .families import ADAPTERS
from .memory import require, told
from .transformer import Transformer

__all__ = ["load_transformer"]

PICKLED = (".bin", ".pt", ".pth", ".ckpt")
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
TOKENIZERS = ("tokenizer.", "vocab.", "spiece.", "sentencepiece.")
HUB_SECONDS = 5.0  # to wait for an answer of the hub
_SMALLER = "take a smaller model, or dtype='bfloat16'"
_WRONG = "the file does not belong to this config.json"
LARGEST_CONFIG = 16 << 20  # bytes of config.json
UNUSED = ("pooler",)  # weights that may be missing: they come after the last layer


def load_transformer(
    source: Any,
    *,
    tokenizer: Any = None,
    revision: str | None = None,
    local_files_only: bool | None = None,
    device: str = "cpu",
    dtype: Any = None,
    allow_pickle: bool = False,
) -> Transformer:
    """A transformer read as an attention dynamics.

    `source` is a folder, a hub id such as "albert-xlarge-v2", or a model of the transformers
    library, which is used as it is. Families: Llama, Mistral, Mixtral, Qwen 2 and 3 and their MoE,
    Gemma 1 to 3, Phi 1 to 4, GPT-OSS, OLMo 2, Cohere, Falcon, StableLM, StarCoder 2, Granite,
    GPT-NeoX (Pythia), GPT-J, OPT, GPT-2, BLOOM; BERT (MiniLM), ELECTRA, RoBERTa (XLM-R, CamemBERT),
    DistilBERT, ALBERT, ModernBERT; ViT.
    A folder is read without any request to the network; a hub id asks the network unless
    `local_files_only` is true or HF_HUB_OFFLINE is set, and one that does not answer within some
    seconds is done without: what was fetched before is used. `dtype` is float32 by default; with
    "float64" iterated layers can be followed longer before rounding decides, and softmax, norms and
    rotary angles, which the library rounds to float32, are float64 too.

    Weights are read from safetensors. A pickled checkpoint (.bin) can run code when it is read:
    it needs allow_pickle=True. Code that comes with a model is never run. A folder without a
    tokenizer is enough for heads and for tokens given as numbers. For a model that reads pictures
    the tokenizer is its image processor (preprocessor_config.json).
    """
    if hasattr(source, "config") and hasattr(source, "base_model"):
        return _wrap(source.base_model, tokenizer or _own_tokenizer(source), _name(source))
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            "source: expected a folder, a hub id or a transformers model, "
            f"got {type(source).__name__}"
        )
    _require()
    folder = Path(source).expanduser()
    local = folder.is_dir()
    if local:
        _inspect(folder, allow_pickle)
    elif isinstance(source, os.PathLike) or folder.exists() or _looks_like_a_path(str(source)):
        what = "a file and no folder" if folder.is_file() else "no such folder"
        raise ValueError(f"{source}: {what}; expected one with config.json and model.safetensors")
    where = str(folder) if local else str(source)
    offline = local or bool(local_files_only)
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
        _family(config.model_type, where)
        weights = {**options, "dtype": _dtype(dtype)}
        if local:
            require(_bytes(folder, config, weights["dtype"]), f"{where}: the model", _SMALLER)
        model = _read(where, "model", weights, allow_pickle)
        reader = _reader(config.model_type)
        if tokenizer is None and not (local and _has_no(reader, folder)):
            tokenizer = _read(where, reader, options, allow_pickle)
    try:
        with told(_SMALLER):
            model = model.to(device)
    except (RuntimeError, AssertionError) as error:  # no such device, or a torch without it
        raise ValueError(f"device: {device!r} cannot be used ({str(error).splitlines()[0]})") from (
            None
        )
    return _wrap(model, tokenizer, folder.name if local else where)


def _wrap(model: Any, tokenizer: Any, name: str) -> Transformer:
    for parameter, values in model.named_parameters():
        if not bool(values.sum().isfinite() or values.isfinite().all()):  # a sum is quick
            wrong = int((~values.isfinite()).sum())
            raise ValueError(
                f"{name}: {wrong} of {values.numel()} numbers of {parameter} are NaN or infinite; "
                "the file is damaged, or training went wrong: fetch or train it again"
            )
    adapter = ADAPTERS[_family(model.config.model_type, name)]
    if not adapter.blocks(model):
        raise ValueError(
            f"{name}: a model of 0 layers, as its config.json says; expected 1 or more"
        )
    return Transformer(model, tokenizer, adapter, name)


def _family(kind: str, where: str) -> str:
    if kind not in ADAPTERS:
        raise ValueError(
            f"{where}: models of type {kind!r} are not supported; supported are "
            f"{', '.join(sorted(ADAPTERS))}. Needed is a file of cynosure/pretrained/families that "
            f"says where a block of {kind!r} has its attention, W_Q, W_K, W_V, W_O and norm "
            "(docs/extending.md)"
        )
    return kind


def _bytes(folder: Path, config: Any, dtype: Any) -> int:
    """What the weights take in memory: their size on disk, in the type they are wanted in."""
    disk = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    stored = getattr(getattr(config, "dtype", None), "itemsize", 4)
    return disk * dtype.itemsize // int(stored)


def _require() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ImportError('reading transformers needs: pip install "cynosure[models]"') from None


def _inspect(folder: Path, pickles: bool) -> None:
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
            f"supported are {', '.join(ADAPTERS)}"
        )
    _family(str(found["model_type"]), str(folder))
    if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in files):
        return
    pickled = [name for name in files if name.endswith(PICKLED)]
    if not pickled:
        raise ValueError(f"{folder}: no weights; expected model.safetensors")
    if not pickles:
        raise ValueError(
            f"{folder}: the weights are pickled ({', '.join(pickled)}) and could run code when "
            "read; if you trust them pass allow_pickle=True (--allow-pickle), or convert them "
            "once: transformers."
            f"AutoModel.from_pretrained({folder.name!r}).save_pretrained({folder.name + '-safe'!r})"
        )


def _reader(kind: str) -> str:
    """What turns texts, or pictures, into what a model of this kind takes."""
    return "tokenizer" if ADAPTERS[kind].picture is None else "image processor"


def _has_no(reader: str, folder: Path) -> bool:
    """transformers makes up a tokenizer with an empty vocabulary, to which each word is unknown."""
    names = TOKENIZERS if reader == "tokenizer" else PROCESSORS
    return not any(path.name.startswith(names) for path in folder.iterdir())


def _looks_like_a_path(source: str) -> bool:
    """A hub id is `name` or `owner/name`; anything else can only be a path."""
    parts = source.split("/")
    return source.startswith((".", "~", os.sep)) or len(parts) > 2 or not all(parts)


def _silence(name: str, revision: str) -> str:
    """Why the hub does not answer, asked once and for HUB_SECONDS at most; "" when it does.

    The transformers library asks six times with growing pauses before it gives up. A refusal, such
    as a name that is not there, is an answer, and the library's words on it are better than ours.
    A look-up of the host can hang beyond any time-out: it is left behind in its own thread.
    """
    from threading import Thread

    import huggingface_hub
    import huggingface_hub.constants as hub
    from huggingface_hub.errors import HfHubHTTPError

    if hub.HF_HUB_OFFLINE:
        return ""
    outcome = [f"nothing within {HUB_SECONDS:g} s"]

    def ask() -> None:
        try:
            huggingface_hub.model_info(name, revision=revision, timeout=HUB_SECONDS)
        except (HfHubHTTPError, ValueError):
            outcome[0] = ""
        except Exception as error:  # of the network, by whichever library asks
            outcome[0] = " ".join(str(error).split()) or type(error).__name__
        else:
            outcome[0] = ""

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_SECONDS + 1)
    return outcome[0]


@contextlib.contextmanager
def _hub(offline: bool) -> Iterator[None]:
    """No request leaves while `offline`, none to convert somebody's weights.

    No progress bars, and no tables of weights that do not fit: that is refused in one line.
    """
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
        raise ValueError(f"{where}: no {what} could be read. {message}{hint[what]}") from error
    _fits(model, info, where)
    return model.eval()


def _fits(model: Any, info: Any, where: str) -> None:
    """Refuse weights that the file does not have, and those it has of layers that are not there.

    transformers would fill the first with random numbers and leave the others out.
    """
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


def _own_tokenizer(model: Any) -> Any:
    """The tokenizer beside a loaded model's weights, if they came from a folder or the cache."""
    origin = str(getattr(model, "name_or_path", ""))
    if not origin:
        return None
    reader = _reader(_family(model.config.model_type, origin))
    with _hub(True), contextlib.suppress(ValueError):
        return _read(origin, reader, {"local_files_only": True}, False)
    return None
