"""joblib and torch: each job has a GPU to itself; other programs can share the GPUs.

    GPUS=0,1 python -m examples.recipes.gpu python examples/recipes/train.py

CUDA reads CUDA_VISIBLE_DEVICES once per process, and joblib reuses its workers.  Therefore each job runs in a new
process, and releases its GPU at the end.  If workers kept their GPUs, two such programs could wait for each other
forever.
"""

import os
import subprocess
import sys

import joblib

import interlock

GPUS = os.environ.get("GPUS", "0,1").split(",")


def train(gpu: interlock.Lock, command: list[str], seed: int) -> str:
    """Run one job on the first GPU that is free; return what it prints."""
    with gpu as grant:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": grant.item}
        return subprocess.run(
            [*command, str(seed)], env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout


def main(command: list[str], jobs: int = 6) -> list[str]:
    """Run jobs with one worker more than there are GPUs, so that a job is always ready when a GPU is released."""
    gpu = interlock.connect().one_of("gpu", GPUS)  # pickled by URL and settings; in the worker it is the same lock
    return joblib.Parallel(n_jobs=len(GPUS) + 1)(joblib.delayed(train)(gpu, command, seed) for seed in range(jobs))


if __name__ == "__main__":
    print("".join(main(sys.argv[1:])), end="")
