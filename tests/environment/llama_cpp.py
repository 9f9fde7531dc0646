"""llama.cpp with the server of its Python bindings: an engine that runs on a CPU.

The package has no wheel in the index, so it is built once, in about 20 minutes of one
processor, into the folder of the testbed's programs.
"""

import fcntl
import subprocess
import sys
import venv
from pathlib import Path

from testbed.programs.install import cache_folder

VERSION = "0.3.36"
REQUIREMENTS = (f"llama-cpp-python[server]=={VERSION}", "gguf==0.19.0", "numpy")
MODEL = "tiny"
_DONE = "done"
# A LLaMA with two layers of 64 random values and a vocabulary of bytes. It answers
# nonsense, in the format of a real model.
_WRITE_MODEL = """
import sys

import gguf
import numpy

LAYERS, WIDTH, HEADS, INNER, BYTES = 2, 64, 4, 128, 256
special = ["<unk>", "<s>", "</s>"]
tokens = [*special, *(f"<0x{value:02X}>" for value in range(BYTES)), "\\u2581"]
kinds = [2, 3, 3, *([6] * BYTES), 1]
random = numpy.random.default_rng(7)


def matrix(*shape):
    return (random.standard_normal(shape) * 0.05).astype(numpy.float32)


def ones():
    return numpy.ones(WIDTH, numpy.float32)


model = gguf.GGUFWriter(sys.argv[1], "llama")
model.add_context_length(512)
model.add_embedding_length(WIDTH)
model.add_block_count(LAYERS)
model.add_feed_forward_length(INNER)
model.add_head_count(HEADS)
model.add_head_count_kv(HEADS)
model.add_layer_norm_rms_eps(1e-5)
model.add_rope_dimension_count(WIDTH // HEADS)
model.add_vocab_size(len(tokens))
model.add_tokenizer_model("llama")
model.add_token_list(tokens)
model.add_token_scores([0.0] * len(tokens))
model.add_token_types(kinds)
model.add_bos_token_id(1)
model.add_eos_token_id(2)
model.add_unk_token_id(0)
model.add_tensor("token_embd.weight", matrix(len(tokens), WIDTH))
model.add_tensor("output_norm.weight", ones())
model.add_tensor("output.weight", matrix(len(tokens), WIDTH))
for layer in range(LAYERS):
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        model.add_tensor(f"blk.{layer}.{name}.weight", matrix(WIDTH, WIDTH))
    for name in ("ffn_gate", "ffn_up"):
        model.add_tensor(f"blk.{layer}.{name}.weight", matrix(INNER, WIDTH))
    model.add_tensor(f"blk.{layer}.ffn_down.weight", matrix(WIDTH, INNER))
    for name in ("attn_norm", "ffn_norm"):
        model.add_tensor(f"blk.{layer}.{name}.weight", ones())
model.write_header_to_file()
model.write_kv_data_to_file()
model.write_tensors_to_file()
model.close()
"""


def interpreter() -> Path:
    """Return a Python with llama.cpp. It is built if the cache does not have it."""
    folder = cache_folder() / "tests" / f"llama-cpp-python-{VERSION}"
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _DONE).exists():
            print(f"building llama-cpp-python {VERSION}, about 20 minutes", flush=True)  # noqa: T201
            venv.create(folder, clear=True, with_pip=True)
            install = [str(python), "-m", "pip", "install", "--progress-bar=off"]
            subprocess.run([*install, *REQUIREMENTS], check=True)
            (folder / _DONE).touch()
    return python


def write_model(python: Path, path: Path) -> None:
    """Write the tiny model."""
    subprocess.run([python, "-c", _WRITE_MODEL, path], check=True)


def server_command(python: Path, model: Path, host: str, port: int) -> list[str]:
    """Return the command of the server."""
    address = ["--host", host, "--port", str(port)]
    return [
        *(str(python), "-m", "llama_cpp.server"),
        *("--model", str(model), "--model_alias", MODEL, "--n_ctx", "512"),
        *address,
    ]


if __name__ == "__main__":
    sys.exit(0 if interpreter().exists() else 1)
