"""Create the folder of a language model with random weights: `make_model.py SHAPE FOLDER`, with a key of SHAPES.

It has a config, weights, and a tokenizer with one word per token, so that each token arrives as text. Nothing is
downloaded. Times are those of a real model of this shape, because they do not depend on the weights; the text makes no
sense. The weights have the scale of trained ones, so that each layer changes what comes after it and a wrong product
changes the log-probabilities of the answer, which are far from uniform.
"""

import fcntl
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

# Shapes of Qwen3 models; all have the same vocabulary and the same keys and values.
SHAPES = {
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "1.7b": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
    "4b": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
    "8b": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32},
}
VOCABULARY = 151_936
LENGTH = 40_960
HEAD, KEY_HEADS = 128, 8
SPECIAL = ("<unk>", "<eos>")
# Standard deviation of a token's score over the vocabulary. With more, rounding alone would change probabilities more.
SCORE_DEVIATION = 3.0
# Each layer adds this much to its input, per number; a token's own embedding is small next to the sum.
ADDED_DEVIATION = 0.5
# Deviations of what attention and the perceptron give before their last matrix, for inputs of deviation 1.
ATTENDED_DEVIATION, GATED_DEVIATION = 0.6, 0.6
# Queries of this length make each position attend to some others more, as trained models do.
QUERY_SCALE = 1.5
# Number of random values that all weights are cut from: a prime, so that no two rows of a matrix begin alike.
POOL = 16_777_259


def weights(shape: str) -> Iterator[tuple[str, tuple[int, ...], float | None]]:
    """Name, shape and standard deviation of each tensor; None for those of one value, the scales of a norm."""
    sizes = SHAPES[shape]
    hidden, inner, heads = sizes["hidden_size"], sizes["intermediate_size"], sizes["num_attention_heads"] * HEAD
    yield "model.embed_tokens.weight", (VOCABULARY, hidden), SCORE_DEVIATION * hidden**-0.5
    for layer in range(sizes["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{name}.{norm}.weight", (hidden,), None
        for norm in ("q_norm", "k_norm"):
            yield f"{name}.self_attn.{norm}.weight", (HEAD,), None
        for matrix, rows in (("q", heads), ("k", KEY_HEADS * HEAD), ("v", KEY_HEADS * HEAD)):
            yield f"{name}.self_attn.{matrix}_proj.weight", (rows, hidden), hidden**-0.5
        yield f"{name}.self_attn.o_proj.weight", (hidden, heads), ADDED_DEVIATION / ATTENDED_DEVIATION * heads**-0.5
        for matrix in ("gate", "up"):
            yield f"{name}.mlp.{matrix}_proj.weight", (inner, hidden), hidden**-0.5
        yield f"{name}.mlp.down_proj.weight", (hidden, inner), ADDED_DEVIATION / GATED_DEVIATION * inner**-0.5
    yield "model.norm.weight", (hidden,), None
    if not is_tied(shape):
        yield "lm_head.weight", (VOCABULARY, hidden), SCORE_DEVIATION * hidden**-0.5


def is_tied(shape: str) -> bool:
    """Whether the scores are the products with the embeddings."""
    return shape != "8b"


def as_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of numbers in single precision, rounded."""
    return ((values.astype(np.float32).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def write_weights(shape: str, path: Path) -> None:
    """Write a safetensors file: the length of the header, the header, the tensors one after another."""
    header, end = {}, 0
    for name, size, _ in weights(shape):
        begin, end = end, end + 2 * int(np.prod(size))
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    normal = np.random.default_rng(1).standard_normal(POOL, np.float32)
    pools: dict[float, np.ndarray] = {}
    position = 0
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, size, deviation in weights(shape):
            left = int(np.prod(size))
            if deviation is None:
                file.write(as_bfloat16(np.full(left, QUERY_SCALE if "q_norm" in name else 1.0)).tobytes())
                continue
            if deviation not in pools:
                pools[deviation] = as_bfloat16(deviation * normal)
            while left:
                part = pools[deviation][position : position + left]
                file.write(part.tobytes())
                position, left = (position + len(part)) % POOL, left - len(part)


def files(shape: str) -> dict[str, object]:
    """Contents of a model's files but the weights, by name."""
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "max_position_embeddings": LENGTH,
        "tie_word_embeddings": is_tied(shape),
        "bos_token_id": 1,
        "eos_token_id": 1,
        **SHAPES[shape],
    }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    words = [*SPECIAL, *(f"t{number}" for number in range(len(SPECIAL), VOCABULARY))]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": word, **flags} for number, word in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "<eos>"}
    return {
        "config.json": config,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 1, "do_sample": False},
        "tokenizer_config.json": settings | {"model_max_length": LENGTH, "clean_up_tokenization_spaces": False},
        "tokenizer.json": tokenizer,
    }


def write_files(shape: str, folder: Path) -> None:
    """Write the model's files but the weights, which a client does not need."""
    for name, content in files(shape).items():
        (folder / name).write_text(json.dumps(content))


def make(shape: str, folder: Path) -> None:
    """Write the model's files, unless they are there; of several processes the first writes and the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "model.safetensors").exists():
            return
        write_files(shape, folder)
        write_weights(shape, folder / "writing")
        (folder / "writing").replace(folder / "model.safetensors")


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
