"""joblib and torch: each job has a GPU to itself, beside other users of the machine.

    GPUS=0,1 python -m examples.recipes.gpu python examples/recipes/train.py

CUDA reads CUDA_VISIBLE_DEVICES once in a process, and the workers of joblib live on: so each job is a process of its
own.  A worker that kept its GPU instead would let two such programs wait for each other for ever.
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
    """Run jobs with more workers than there are GPUs: others may use them meanwhile."""
    gpu = interlock.connect().one_of("gpu", GPUS)  # pickled by URL and settings; in the worker it is the same lock
    return joblib.Parallel(n_jobs=len(GPUS) + 1)(joblib.delayed(train)(gpu, command, seed) for seed in range(jobs))


if __name__ == "__main__":
    print("".join(main(sys.argv[1:])), end="")
