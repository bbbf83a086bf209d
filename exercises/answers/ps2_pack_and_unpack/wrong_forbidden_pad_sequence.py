"""Pads with torch's pad_sequence, once as a function and once as the operator."""

import torch
from torch.nn.utils.rnn import pad_sequence

LOSES = {"ps2.pack": "forbidden", "ps2.unpack": "forbidden"}


def pack(x, lengths):
    order = torch.argsort(lengths, descending=True)
    sequences = torch._C._nn.pad_sequence([x[b, : lengths[b]] for b in order], False, 0.0)
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([sequences[t, :n] for t, n in enumerate(sizes)]), torch.tensor(sizes), order


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    steps = data.split(batch_sizes.tolist())
    x = pad_sequence(steps, batch_first=True, padding_value=padding_value).transpose(0, 1)
    lengths = lengths_from_batch_sizes(batch_sizes)
    more = (total_length or len(batch_sizes)) - len(batch_sizes)
    x = torch.cat([x, x.new_full((len(x), more, *x.shape[2:]), padding_value)], 1)
    return x[torch.argsort(order)], lengths[torch.argsort(order)]
