"""Answers that call themselves equal to everything."""

import torch

LOSES = {
    "ps2.batch_sizes": "not-plain",
    "ps2.pack": "not-plain",
    "ps2.lengths": "not-plain",
    "ps2.unpack": "not-plain",
}


class Liar:
    shape, dtype, layout, is_nested = (), torch.int64, torch.strided, False

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __getattr__(self, name):
        return lambda *args, **kwargs: self

    def tolist(self):
        return self

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([self, self, self])


class LyingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


class LyingTuple(tuple):
    def __eq__(self, other):
        return True


def batch_sizes(lengths):
    return Liar()


def pack(x, lengths):
    return Liar(), Liar(), Liar()


def lengths_from_batch_sizes(batch_sizes):
    return torch.zeros(1).as_subclass(LyingTensor)


def unpack(data, batch_sizes, order, padding_value=0.0, total_length=None):
    return LyingTuple([data, batch_sizes])
