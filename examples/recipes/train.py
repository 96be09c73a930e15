"""What each job does on its GPU: `examples/recipes/gpu.py` starts it."""

import sys

import torch  # type: ignore[import-not-found,unused-ignore]

torch.manual_seed(int(sys.argv[1]))
print(float(torch.rand(1000, device="cuda").sum()))  # "cuda" is the only GPU that this process sees
