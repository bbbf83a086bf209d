"""Asks the checks' own picture of a batch, which knows every answer."""

import torch

from packlib.checks.ragged import Ragged

LOSES = {"ps2.batch_sizes": "forbidden", "ps2.pack": "forbidden"}


def batch_sizes(lengths):
    return torch.tensor(Ragged(tuple(lengths.tolist())).batch_sizes)


def pack(x, lengths):
    batch = Ragged(tuple(lengths.tolist()))
    data = torch.stack([x[b, t] for b, t in batch.rows()])
    return data, torch.tensor(batch.batch_sizes), torch.tensor(batch.order)
