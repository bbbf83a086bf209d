"""Sorts the rows and lays them end to end, padding and all."""

import torch

LOSES = {"ps2.pack": "keeps-padding-sequence-major"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    return x[order].reshape(-1, *x.shape[2:]), torch.full((x.shape[1],), len(x)), order
