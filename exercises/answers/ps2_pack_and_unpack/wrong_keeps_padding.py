"""Transposes and flattens, padding and all."""

import torch

LOSES = {"ps2.pack": "keeps-padding"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    data = x[order].transpose(0, 1).flatten(0, 1)
    return data, torch.full((x.shape[1],), len(x)), order
