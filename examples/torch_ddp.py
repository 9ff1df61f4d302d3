"""Data-parallel training with PyTorch, whose gradients heddle sums: a communication hook for DistributedDataParallel.

    LIBHEDDLE=$PWD/dist/lib/libheddle.so torchrun --nproc-per-node 2 dist/share/heddle/examples/torch_ddp.py [--method topk:0.01]

Trains the same network twice, an epoch of each by turns: with gloo's sums, and with heddle's, which `--method` compresses (docs/compression.md).
"""
import argparse
import csv
import math
import os
import pathlib
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import heddle_ctypes


def start_heddle():
    """A communicator over the ranks of the default process group. torchrun's own store has MASTER_PORT, so rank 0 looks for another one, unless it is told."""
    port = [os.environ.get('HEDDLE_MASTER_PORT') or None]
    if port[0] is None and dist.get_rank() == 0:
        with socket.socket() as free:
            free.bind(('', 0))
            port = [free.getsockname()[1]]
    dist.broadcast_object_list(port)
    os.environ['HEDDLE_MASTER_PORT'] = str(port[0])
    return heddle_ctypes.Communicator()


def hook_of(comm, method):
    """For register_comm_hook: the mean of the gradients in a bucket."""
    # These two lose as much as the largest value, so that what is kept of them would grow without bound (docs/compression.md).
    keeps = method is not None and not method.startswith(('qsgd:2', 'terngrad'))

    def hook(_, bucket):
        gradients = bucket.buffer()
        if method is None:
            comm.allreduce(gradients.data_ptr(), gradients.numel())
        else:
            comm.compressed_allreduce(gradients.data_ptr(), gradients.numel(), method, bucket.index() if keeps else None)
        done = torch.futures.Future()
        done.set_result(gradients.div_(dist.get_world_size()))
        return done

    return hook


class Training:
    """One network, the same on every rank and in every training, and what it took."""

    def __init__(self, name, rate):
        torch.manual_seed(1)
        self.name = name
        self.network = DistributedDataParallel(
            nn.Sequential(nn.Linear(64, 448), nn.ReLU(), nn.Linear(448, 448), nn.ReLU(), nn.Linear(448, 10)))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=rate)
        self.seconds = []
        self.loss = None

    def epoch(self, inputs, labels, batch):
        dist.barrier()
        begin = time.perf_counter()
        for first in range(0, len(inputs) - batch + 1, batch):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.network(inputs[first:first + batch]), labels[first:first + batch])
            loss.backward()
            self.optimizer.step()
        self.loss = loss.item()
        self.seconds.append(time.perf_counter() - begin)

    def accuracy(self, inputs, labels):
        with torch.no_grad():
            return (self.network.module(inputs).argmax(1) == labels).float().mean().item()


def digits(path):
    """Pixels from 0 to 1 and labels, the latter from each line's last column."""
    with open(path, newline='', encoding='ascii') as file:
        rows = torch.tensor([[float(cell) for cell in row] for row in csv.reader(file)])
    return rows[:, :-1] / 16, rows[:, -1].long()


def median_of(values):
    """The median and its 95% confidence interval, by order statistics."""
    values = sorted(values)
    half = 0.98 * math.sqrt(len(values))
    low, high = math.floor(len(values) / 2 - half), math.ceil(len(values) / 2 + half)
    return statistics.median(values), values[max(low, 0)], values[min(high, len(values) - 1)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--method', help='compresses heddle\'s sums: fp16, topk:0.01, ... (default: exact sums)')
    parser.add_argument('--epochs', type=int, default=20)
    parser.add_argument('--batch', type=int, default=16, help='of each rank (default: %(default)s)')
    parser.add_argument('--rate', type=float, default=0.1, help='of learning (default: %(default)s)')
    parser.add_argument('--data', default=pathlib.Path(__file__).parent / 'data' / 'digits.csv')
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(1)
    dist.init_process_group('gloo')
    rank, size = dist.get_rank(), dist.get_world_size()
    inputs, labels = digits(options.data)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(2))
    held_out, mine = order[::5], order[[i for i in range(len(order)) if i % 5]][rank::size]
    mine = mine[:len(order) * 4 // 5 // size]  # as many on every rank
    if not 1 <= options.batch <= len(mine) or options.epochs < 1:
        sys.exit(f'--batch {options.batch}, --epochs {options.epochs}: give a batch of 1 to {len(mine)}, the samples of a rank, and an epoch or more')
    comm = start_heddle()
    trainings = [Training('gloo', options.rate), Training('heddle', options.rate)]
    trainings[1].network.register_comm_hook(None, hook_of(comm, options.method))
    for epoch in range(options.epochs):
        for training in trainings if epoch % 2 == 0 else trainings[::-1]:
            training.epoch(inputs[mine], labels[mine], options.batch)
    if rank == 0:
        for training in trainings:
            print(f'{training.name:8} loss {training.loss:.4f}  accuracy {training.accuracy(inputs[held_out], labels[held_out]):.4f}  '
                  f'median of an epoch {statistics.median(training.seconds):.3f} s')
        gloos, heddles = (training.seconds for training in trainings)
        median, low, high = median_of([gloo / ours for gloo, ours in zip(gloos, heddles)])
        interval = '95% confidence' if options.epochs >= 6 else 'range'
        print(f'ratio    {median:.2f}, {interval} {low:.2f} to {high:.2f} ({options.epochs} epochs of each, {size} ranks)')
    comm.close()
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
