"""Encoding of a text by a transformer in the shape of BERT-base, as in Quigley's benchmark: random tokens.

Params: `sequence` (tokens, at most 512), `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only:
replay one captured graph), `path` (a local folder with trained weights; without one they are random).
"""

from __future__ import annotations

from pathlib import Path

import torch

from tenant.gpu.models import ModelWorkload, Settings, import_transformers, local_path, pretrained, read
from tenant.parameters import ParameterError, Params, positive_integer

transformers = import_transformers()

FRAMEWORKS = {"cpu": ("torch", "transformers"), "cuda": ("torch", "transformers")}
LONGEST = 512


class Bert(ModelWorkload):
    """One pass over the same tokens; the output is the last hidden state."""

    modules = ("torch", "transformers")

    def __init__(self, device: str, settings: Settings, sequence: int, path: Path | None) -> None:
        super().__init__(device, settings)
        with self.building():
            model = pretrained(transformers.BertModel, path, transformers.BertConfig())
            vocabulary = model.config.vocab_size
            tokens = torch.randint(vocabulary, (self.batch, sequence), generator=torch.Generator().manual_seed(0))
            self.serve(
                self.placed(model), {"input_ids": tokens.to(self.device)}, lambda output: output.last_hidden_state
            )


def create(params: Params, device: str) -> Bert:
    settings, own = read(params, {"sequence": 128, "path": ""}, "bert")
    sequence = positive_integer(own["sequence"], "bert sequence")
    if sequence > LONGEST:
        raise ParameterError(f"bert sequence must be at most {LONGEST}, not {sequence}")
    return Bert(device, settings, sequence, local_path(own["path"], "bert path"))
