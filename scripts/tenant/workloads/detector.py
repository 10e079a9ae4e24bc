"""Text detection by a trained network: PP-OCRv6 small in onnxruntime, on an image with digits.

Params: `height` and `width` (pixels, multiples of 32), `batch` (images per iteration). The network is a file in
rapidocr's wheel, from which no code is imported; the images are drawn here.
"""

import importlib.metadata
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import Work, Workload

FRAMEWORKS = {"cpu": ("onnxruntime",), "cuda": ("onnxruntime",)}
MODEL = "PP-OCRv6_det_small.onnx"
STRIDE = 32
PAPER, INK, GRAIN = 0.85, 0.1, 0.03
# Mean and standard deviation of each colour in the network's training data.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
# Bitmaps of the digits 0 to 9: seven rows of five pixels, one bit per pixel.
DIGITS = (
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 6, 8, 16, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
SCALE = 3
# The space of a digit: five by seven pixels and a gap, enlarged.
CELL_WIDTH, CELL_HEIGHT = 6 * SCALE, 7 * SCALE

Images = npt.NDArray[np.float32]


def draw_digits(batch: int, height: int, width: int) -> tuple[Images, npt.NDArray[np.bool_]]:
    """Grey images (batch, height, width) in 0 .. 1 with a line of digits each, and the mask (height, width) of it."""
    generator = np.random.default_rng(0)
    count = (width - 2 * SCALE) // CELL_WIDTH
    top, left = (height - CELL_HEIGHT) // 2, (width - count * CELL_WIDTH) // 2
    ink = np.zeros((batch, height, width), bool)
    for image in ink:
        for place, digit in enumerate(generator.integers(0, 10, count)):
            rows = np.array(DIGITS[digit], np.uint8)[:, np.newaxis]
            glyph = np.unpackbits(rows, axis=1)[:, 3:].repeat(SCALE, axis=0).repeat(SCALE, axis=1)
            x = left + place * CELL_WIDTH
            image[top : top + CELL_HEIGHT, x : x + 5 * SCALE] = glyph
    paper = PAPER + GRAIN * generator.standard_normal(ink.shape, np.float32)
    line = np.zeros((height, width), bool)
    line[top : top + CELL_HEIGHT, left : left + count * CELL_WIDTH] = True
    return np.where(ink, np.float32(INK), paper).clip(0, 1), line


def normalise(images: Images) -> Images:
    """Turn grey images (batch, height, width) into the network's input (batch, 3, height, width)."""
    shape = (1, 3, 1, 1)
    return np.ascontiguousarray((images[:, np.newaxis] - MEAN.reshape(shape)) / DEVIATION.reshape(shape))


def model_path() -> Path:
    """Path of the network. Raises PackageNotFoundError without rapidocr, ParameterError if it lacks the file."""
    for file in importlib.metadata.files("rapidocr") or ():
        if file.name == MODEL:
            return Path(str(file.locate()))
    version = importlib.metadata.version("rapidocr")
    raise ParameterError(f"detector: rapidocr {version} has no {MODEL}; install the version of envs/tenant-cpu.txt")


class Detector(Workload):
    """An iteration is one pass over constant images; the output is each pixel's likelihood of belonging to text."""

    def __init__(self, batch: int, height: int, width: int, device: str) -> None:
        path = model_path()
        images, _ = draw_digits(batch, height, width)
        self._session = _session(path, images.shape, device)
        self._input = {self._session.get_inputs()[0].name: normalise(images)}
        self._likelihood: Images = np.zeros((batch, 1, height, width), np.float32)
        self._is_on_cpu = device == "cpu"
        input_output_bytes = sum(array.nbytes for array in self._input.values()) + self._likelihood.nbytes
        # The file is 1 % larger than its weights. onnxruntime does not report how many operations a network has.
        self.work = Work(None, float(path.stat().st_size + input_output_bytes), batch, "fp32")

    def step(self) -> None:
        # `run` returns once the output is in the host's memory.
        self._likelihood = self._session.run(None, self._input)[0]

    def output_digest(self) -> list[float]:
        likelihood = self._likelihood.astype(np.float64)
        return [float(likelihood.mean()), float(likelihood.std()), float(likelihood.max())]

    def packages(self) -> dict[str, str]:
        return {"onnxruntime": onnxruntime.__version__, "rapidocr": importlib.metadata.version("rapidocr")}

    def memory_bytes(self) -> int | None:
        """Peak resident memory of the process; None on a GPU, where onnxruntime does not report its memory."""
        return super().memory_bytes() if self._is_on_cpu else None


def _session(path: Path, shape: tuple[int, ...], device: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # A tenant has one core, and no thread may spin on it.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for number, size in enumerate(shape):
        options.add_free_dimension_override_by_name(f"DynamicDimension.{number}", size)
    if device == "cpu":
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ParameterError(
            f"detector on {device} needs onnxruntime-gpu, {sys.executable} has an onnxruntime without CUDA; "
            "run `make gpu-env`"
        )
    onnxruntime.preload_dlls()
    cuda = {
        # A search by timing could choose different kernels for each tenant.
        "cudnn_conv_algo_search": "HEURISTIC",
        "arena_extend_strategy": "kSameAsRequested",
        "use_tf32": "0",
    }
    session = onnxruntime.InferenceSession(path, options, providers=[("CUDAExecutionProvider", cuda)])
    # If the provider cannot be loaded, onnxruntime logs the reason and falls back to the CPU.
    if "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("onnxruntime could not use the GPU; the reason is in what it wrote before this line")
    return session


def create(params: Params, device: str) -> Detector:
    sizes = with_defaults(params, {"height": 64, "width": 64, "batch": 1}, "detector")
    for name in ("height", "width"):
        if sizes[name] % STRIDE:
            raise ParameterError(f"detector {name} must be a multiple of {STRIDE}, not {sizes[name]}")
    return Detector(**sizes, device=device)
