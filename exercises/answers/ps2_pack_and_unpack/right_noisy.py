"""Right, but it prints, warns, and leaves torch's defaults changed."""

import warnings

import torch


def batch_sizes(lengths):
    print("lengths are", lengths)
    warnings.warn("counting now")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    return torch.stack([(lengths > t).sum() for t in range(int(lengths.max()))])


def pack(x, lengths):
    warnings.warn("packing now")
    torch.set_grad_enabled(False)
    alive = list(range(len(lengths)))
    alive.sort(key=lambda b: -int(lengths[b]))
    order, data, sizes, t = torch.tensor(alive), [], [], 0
    while alive:
        data += [x[b, t] for b in alive]
        sizes.append(len(alive))
        t += 1
        alive = [b for b in alive if lengths[b] > t]
    print(x, lengths)
    return [torch.stack(data), torch.tensor(sizes), order]
