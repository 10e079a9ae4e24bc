"""Text encoding by a transformer of BERT-base's shape, as in Quigley's benchmark; tokens and weights are random.

Params: `sequence` (tokens, at most 512), `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only:
replay one captured graph).
"""

import torch

from tenant.gpu.models import COMMON_DEFAULTS, ModelWorkload, import_transformers
from tenant.parameters import ParameterError, Params, with_defaults

transformers = import_transformers()
# Named here, since transformers imports a model when it is first named.
MODEL, CONFIG = transformers.BertModel, transformers.BertConfig

FRAMEWORKS = {"cpu": ("torch", "transformers"), "cuda": ("torch", "transformers")}
MAX_SEQUENCE = 512


def create(params: Params, device: str) -> ModelWorkload:
    """An iteration is one forward pass over constant tokens; the output is the last hidden state."""
    values = with_defaults(params, {**COMMON_DEFAULTS, "sequence": 128}, "bert")
    sequence = values.pop("sequence")
    if sequence > MAX_SEQUENCE:
        raise ParameterError(f"bert sequence must be at most {MAX_SEQUENCE}, not {sequence}")
    bert = ModelWorkload(device, **values, library="transformers")
    with bert.building():
        model = bert.random_model(lambda: MODEL(CONFIG()))
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(model.config.vocab_size, (bert.batch, sequence), generator=generator)
        bert.prepare_model(model, {"input_ids": tokens.to(bert.device)}, lambda output: output.last_hidden_state)
    return bert
