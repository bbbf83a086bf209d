"""Right numbers in int32."""

import torch

LOSES = {"ps2.batch_sizes": "other-dtype", "ps2.lengths": "other-dtype"}


def batch_sizes(lengths):
    steps = torch.arange(int(lengths.max()))
    return (lengths > steps[:, None]).sum(1, dtype=torch.int32)


def lengths_from_batch_sizes(batch_sizes):
    return (batch_sizes > torch.arange(int(batch_sizes[0]))[:, None]).sum(1).float()
