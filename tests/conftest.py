"""What holds for every test: no network, one thread, fixed seeds, no deadlines."""

import os

# before anything imports torch or huggingface_hub; servers that a test starts inherit them
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # kernels are tested in the interpreter on any machine; `make gpu` tests a card

import random

import numpy as np
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repository", deadline=None, derandomize=True, database=None)
settings.load_profile("repository")


@pytest.fixture(autouse=True)
def _seeded():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
