"""Encoding of a text by a transformer in the shape of BERT-base, as in Quigley's benchmark: random tokens.

Params: `sequence` (tokens, at most 512), `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only:
replay one captured graph). Its weights are random.
"""

from __future__ import annotations

from typing import Any

import torch

from tenant.gpu.models import COMMON, ModelWorkload, import_transformers
from tenant.parameters import ParameterError, Params, with_defaults

transformers = import_transformers()

FRAMEWORKS = {"cpu": ("torch", "transformers"), "cuda": ("torch", "transformers")}
LONGEST = 512


class Bert(ModelWorkload):
    """One pass over the same tokens; the output is the last hidden state."""

    modules = ("torch", "transformers")

    def __init__(self, device: str, sequence: int, **common: Any) -> None:
        super().__init__(device, **common)
        with self.building():
            model = transformers.BertModel(transformers.BertConfig())
            vocabulary = model.config.vocab_size
            tokens = torch.randint(vocabulary, (self.batch, sequence), generator=torch.Generator().manual_seed(0))
            self.serve(
                self.placed(model), {"input_ids": tokens.to(self.device)}, lambda output: output.last_hidden_state
            )


def create(params: Params, device: str) -> Bert:
    values = with_defaults(params, {**COMMON, "sequence": 128}, "bert")
    if values["sequence"] > LONGEST:
        raise ParameterError(f"bert sequence must be at most {LONGEST}, not {values['sequence']}")
    return Bert(device, **values)
