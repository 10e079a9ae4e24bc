"""Create the folder of a language model with random weights: `make_model.py SHAPE FOLDER`, with a key of SHAPES.

It has a config and a tokenizer with one word per token, so that each token arrives as text. It has no weights: a server
draws them itself (vLLM with `--load-format dummy`). Nothing is downloaded. Times are those of a real model of this
shape, because they do not depend on the weights; the text makes no sense.
"""

import json
import sys
from pathlib import Path

# Shapes of Qwen3 models; all have the same vocabulary.
SHAPES = {
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "1.7b": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
    "8b": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32},
}
VOCABULARY = 151_936
LENGTH = 40_960
SPECIAL = ("<unk>", "<eos>")


def files(shape: str) -> dict[str, object]:
    """Contents of a model's files, by name."""
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "max_position_embeddings": LENGTH,
        "tie_word_embeddings": shape != "8b",
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


def make(shape: str, folder: Path) -> None:
    """Write the model's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files(shape).items():
        (folder / name).write_text(json.dumps(content))


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
