"""Trains a small network to distinguish two arms of a spiral, and exits: `train.py [steps]`. A GPU needs torch."""

import sys

import numpy as np

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
WIDTH, BATCH, RATE = 1024, 512, 0.1

draw = np.random.default_rng(1)
turn = draw.uniform(0.2, 1, 4096) * 3 * np.pi
arm = draw.integers(0, 2, 4096)
points = np.stack([turn * np.cos(turn + np.pi * arm), turn * np.sin(turn + np.pi * arm)], axis=1) / (3 * np.pi)
# Angles and distance, so that a network of one layer can learn it.
inputs = np.concatenate([points, np.sin(4 * points), np.cos(4 * points), points**2], axis=1).astype(np.float32)


def with_numpy() -> float:
    """Train on a CPU; returns the share of points that the network classifies correctly."""
    first = draw.normal(0, 0.5, (inputs.shape[1], WIDTH)).astype(np.float32)
    second = draw.normal(0, 0.1, (WIDTH, 2)).astype(np.float32)
    for step in range(STEPS):
        chosen = draw.integers(0, len(inputs), BATCH)
        hidden = np.maximum(inputs[chosen] @ first, 0)
        scores = hidden @ second
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        slope = odds / odds.sum(axis=1, keepdims=True)
        loss = -np.log(slope[np.arange(BATCH), arm[chosen]]).mean()
        slope[np.arange(BATCH), arm[chosen]] -= 1
        back = (slope @ second.T) * (hidden > 0)
        second -= RATE / BATCH * hidden.T @ slope
        first -= RATE / BATCH * inputs[chosen].T @ back
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)
    return float(((np.maximum(inputs @ first, 0) @ second).argmax(axis=1) == arm).mean())


def with_torch(torch) -> float:
    """Train on the GPU, as `with_numpy` does on a CPU."""
    samples, labels = torch.tensor(inputs, device="cuda"), torch.tensor(arm, device="cuda")
    model = torch.nn.Sequential(torch.nn.Linear(inputs.shape[1], WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 2)).to(
        "cuda"
    )
    descent = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        chosen = torch.randint(len(inputs), (BATCH,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(samples[chosen]), labels[chosen])
        descent.zero_grad()
        loss.backward()
        descent.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return float((model(samples).argmax(dim=1) == labels).float().mean())


try:
    import torch
except ImportError:
    torch = None
correct = with_torch(torch) if torch is not None and torch.cuda.is_available() else with_numpy()
print(f"{correct:.1%} of the points are right")
