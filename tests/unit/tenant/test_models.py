"""The torch models on a CPU: declared work, precision, reproducible outputs. Skipped without torch."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tenant import workloads
from tenant.parameters import ParameterError

for package in ("torch", "torchvision", "transformers"):
    pytest.importorskip(package, reason=f"{package} is only in the GPU environment (make gpu-env)")

torch = importlib.import_module("torch")
transformers = importlib.import_module("transformers")
models = importlib.import_module("tenant.gpu.models")
llm_decode = importlib.import_module("tenant.workloads.llm_decode")

# A few layers of everything that a language model has, in milliseconds.
TINY = {"HIDDEN": 64, "INNER": 96, "VOCABULARY": 50, "HEADS": 4, "KEY_HEADS": 2, "HEAD": 16}


attached: list[Any] = []


@pytest.fixture(autouse=True)
def precision_settings() -> Iterator[None]:
    """Restore the precision of matmuls, which is a setting of the process."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    # Inference mode belongs to the thread, in which other tests train.
    while attached:
        attached.pop()._thread_context.close()
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.fixture
def tiny_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in TINY.items():
        monkeypatch.setattr(llm_decode, name, size)


def make(module: str, **params: Any) -> Any:
    workload = workloads.create(workloads.load_module(module, "cpu"), params, "cpu")
    workload.attach()
    attached.append(workload)
    workload.step()
    return workload


def test_resnet50_has_the_operations_of_the_literature() -> None:
    work = make("resnet50").work
    assert work.flop == pytest.approx(2 * 4.09e9, rel=0.002)
    # 25.6 million weights, the statistics of its normalisations, an image and 1000 classes.
    assert work.bytes == 4 * (25_557_032 + 53_120 + 3 * 224**2 + 1000)


def test_yolos_is_the_model_of_the_nos_benchmark() -> None:
    workload = make("yolos")
    assert workload.output.shape == (1, 100, 92)
    weights = workload.work.bytes / 4 - 3 * 512 * 864 - 100 * 92
    assert weights == pytest.approx(30.7e6, rel=0.01)
    assert min(workload.output_digest()) > 1e-3


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "fp32"), ("tf32", "tf32"), ("bfloat16", "bf16")])
def test_a_model_computes_in_the_configured_precision(dtype: str, precision: str) -> None:
    single, workload = make("resnet50"), make("resnet50", dtype=dtype)
    is_half, is_tf32 = dtype == "bfloat16", dtype == "tf32"
    assert workload.work.precision == precision
    assert workload.work.bytes == single.work.bytes / (2 if is_half else 1)
    assert workload.output.dtype == (torch.bfloat16 if is_half else torch.float32)
    assert workload.output_digest() == pytest.approx(single.output_digest(), rel=0.02)
    assert torch.get_float32_matmul_precision() == ("high" if is_tf32 else "highest")
    assert torch.backends.cudnn.allow_tf32 == is_tf32


@pytest.mark.parametrize(
    ("module", "params"), [("bert", {"sequence": 16}), ("resnet50", {}), ("llm_decode", {"layers": 1, "context": 8})]
)
def test_every_tenant_and_every_iteration_has_the_same_output(
    module: str, params: dict[str, Any], tiny_llm: None
) -> None:
    first, second = make(module, **params), make(module, **params)
    digest = first.output_digest()
    assert digest == second.output_digest()
    first.step()
    assert first.output_digest() == digest
    assert min(map(abs, digest)) > 1e-2


def reference_decode(context: int, layers: int) -> Any:
    """The next token's likelihoods by the Llama of transformers, with the weights and the cache of llm_decode."""
    decoder = llm_decode.Decoder(llm_decode.Draw(torch.device("cpu"), torch.float32), layers, 1, context)
    config = transformers.LlamaConfig(
        hidden_size=TINY["HIDDEN"],
        intermediate_size=TINY["INNER"],
        vocab_size=TINY["VOCABULARY"],
        num_hidden_layers=layers,
        num_attention_heads=TINY["HEADS"],
        num_key_value_heads=TINY["KEY_HEADS"],
        head_dim=TINY["HEAD"],
        rms_norm_eps=llm_decode.NORM_EPSILON,
    )
    model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    model.model.embed_tokens.weight.copy_(decoder.embedding.weight)
    model.lm_head.weight.copy_(decoder.head)
    cache = transformers.DynamicCache(config=config)
    splits = [heads * TINY["HEAD"] for heads in (TINY["HEADS"], TINY["KEY_HEADS"], TINY["KEY_HEADS"])]
    for number, (layer, reference) in enumerate(zip(decoder.layers, model.model.layers, strict=True)):
        attention, mlp = reference.self_attn, reference.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        for projection, weight in zip(projections, layer.query_key_value.split(splits), strict=True):
            projection.weight.copy_(weight)
        attention.o_proj.weight.copy_(layer.out)
        for projection, weight in zip((mlp.gate_proj, mlp.up_proj), layer.gate_up.chunk(2), strict=True):
            projection.weight.copy_(weight)
        mlp.down_proj.weight.copy_(layer.down)
        cache.update(layer.keys[:, :, :context].clone(), layer.values[:, :, :context].clone(), number)
    token = torch.randint(TINY["VOCABULARY"], (1, 1), generator=torch.Generator().manual_seed(0))
    return model(token, past_key_values=cache, position_ids=torch.tensor([[context]])).logits[0]


def test_decoding_agrees_with_llama_of_transformers(tiny_llm: None) -> None:
    workload = make("llm_decode", layers=2, context=9)
    assert torch.allclose(workload.output, reference_decode(9, 2), atol=1e-4)


def test_work_does_not_count_the_embedding_table(tiny_llm: None) -> None:
    work = make("llm_decode", layers=1, context=8).work
    head = TINY["HIDDEN"] * TINY["VOCABULARY"]
    layer = TINY["HIDDEN"] * (2 * 4 * 16 + 2 * 2 * 16 + 3 * TINY["INNER"])
    cache, rotation, token = 2 * 2 * 9 * 16, 2 * 16, 2
    assert work.bytes == 4 * (head + layer + cache + rotation + token + TINY["VOCABULARY"])


@pytest.mark.parametrize(
    ("module", "params", "message"),
    [
        ("bert", {"sequence": 513}, "bert sequence must be at most 512, not 513"),
        ("yolos", {"graph": True}, "graph: true needs device cuda, not cpu"),
    ],
)
def test_a_wrong_parameter_is_one_clear_line(module: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        make(module, **params)
    assert str(caught.value) == message
