"""Encoding of a text by a transformer in the shape of BERT-base, as in Quigley's benchmark: random tokens.

Params: `sequence` (tokens, at most 512), `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only:
replay one captured graph). Its weights are random.
"""

import torch

from tenant.gpu.models import COMMON, ModelWorkload, import_transformers
from tenant.parameters import ParameterError, Params, with_defaults

transformers = import_transformers()

FRAMEWORKS = {"cpu": ("torch", "transformers"), "cuda": ("torch", "transformers")}
LONGEST = 512


def create(params: Params, device: str) -> ModelWorkload:
    """One pass over the same tokens; the output is the last hidden state."""
    values = with_defaults(params, {**COMMON, "sequence": 128}, "bert")
    sequence = values.pop("sequence")
    if sequence > LONGEST:
        raise ParameterError(f"bert sequence must be at most {LONGEST}, not {sequence}")
    bert = ModelWorkload(device, **values, library="transformers")
    with bert.building():
        model = transformers.BertModel(transformers.BertConfig())
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(model.config.vocab_size, (bert.batch, sequence), generator=generator)
        bert.serve(bert.placed(model), {"input_ids": tokens.to(bert.device)}, lambda output: output.last_hidden_state)
    return bert
