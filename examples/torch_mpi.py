"""Data-parallel training with PyTorch and mpi4py, whose gradients stay on the GPU: what MPI alone refuses, unless it was built for CUDA.

    mpiexec -n 2 env LD_PRELOAD=$PWD/dist/lib/libheddle_preload.so python3 dist/share/heddle/examples/torch_mpi.py

Trains the same network by turns, an epoch of each: with gradients passed to MPI_Allreduce where they lie, and copied to the host and back by hand. Without a GPU it compares the host with itself.
"""
import argparse
import pathlib
import statistics
import sys
import time

import torch
from mpi4py import MPI
from torch import nn

from torch_ddp import digits

COMM = MPI.COMM_WORLD


def sum_in_place(gradients):
    """As they are; the GPU's work on its default stream comes first, as heddle promises."""
    COMM.Allreduce(MPI.IN_PLACE, gradients)


def sum_by_hand(gradients):
    host = gradients.cpu()
    COMM.Allreduce(MPI.IN_PLACE, host.numpy())
    gradients.copy_(host)


class Training:
    """One network, the same on every rank and in every training, whose gradients lie behind each other in one vector."""

    def __init__(self, name, total, device, width, rate):
        torch.manual_seed(1)
        self.name = name
        self.total = total
        self.network = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).to(device)
        parameters = list(self.network.parameters())
        self.gradients = torch.zeros(sum(one.numel() for one in parameters), device=device)
        at = 0
        for one in parameters:
            one.grad = self.gradients[at:at + one.numel()].view_as(one)
            at += one.numel()
        self.optimizer = torch.optim.SGD(parameters, lr=rate)
        self.seconds = []
        self.loss = None

    def epoch(self, inputs, labels, batch):
        COMM.Barrier()
        begin = time.perf_counter()
        for first in range(0, len(inputs) - batch + 1, batch):
            self.gradients.zero_()
            loss = nn.functional.cross_entropy(self.network(inputs[first:first + batch]), labels[first:first + batch])
            loss.backward()
            self.total(self.gradients)
            self.gradients.div_(COMM.size)
            self.optimizer.step()
        self.loss = loss.item()
        self.seconds.append(time.perf_counter() - begin)

    def accuracy(self, inputs, labels):
        with torch.no_grad():
            return (self.network(inputs).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--epochs', type=int, default=10)
    parser.add_argument('--batch', type=int, default=64, help='of each rank (default: %(default)s)')
    parser.add_argument('--width', type=int, default=2048, help='of the hidden layers (default: %(default)s)')
    parser.add_argument('--rate', type=float, default=0.1, help='of learning (default: %(default)s)')
    parser.add_argument('--data', default=pathlib.Path(__file__).parent / 'data' / 'digits.csv')
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    device = f'cuda:{COMM.rank % torch.cuda.device_count()}' if torch.cuda.is_available() else 'cpu'
    inputs, labels = (one.to(device) for one in digits(options.data))
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(2)).to(device)
    held_out, mine = order[::5], order[[i for i in range(len(order)) if i % 5]][COMM.rank::COMM.size]
    mine = mine[:len(order) * 4 // 5 // COMM.size]  # as many on every rank
    if not 1 <= options.batch <= len(mine) or options.epochs < 1:
        sys.exit(f'--batch {options.batch}, --epochs {options.epochs}: give a batch of 1 to {len(mine)}, the samples of a rank, and an epoch or more')
    trainings = [Training('by hand', sum_by_hand, device, options.width, options.rate), Training('as they are', sum_in_place, device, options.width, options.rate)]
    for epoch in range(options.epochs):
        for training in trainings if epoch % 2 == 0 else trainings[::-1]:
            training.epoch(inputs[mine], labels[mine], options.batch)
    alike = [bool((COMM.bcast(training.gradients.cpu()) == training.gradients.cpu()).all()) for training in trainings]
    alike = [all(COMM.allgather(one)) for one in alike]
    if COMM.rank == 0:
        print(f'{COMM.size} ranks on {device}, {trainings[0].gradients.numel()} gradients')
        for training, same in zip(trainings, alike):
            print(f'{training.name:12} loss {training.loss:.6f}  accuracy {training.accuracy(inputs[held_out], labels[held_out]):.4f}  '
                  f'median of an epoch {statistics.median(training.seconds):.4f} s  the same bits on all ranks: {"yes" if same else "NO"}')
        ratios = [a / b for a, b in zip(trainings[0].seconds, trainings[1].seconds)]
        print(f'ratio        {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, {options.epochs} epochs of each)')
    if not all(alike):
        sys.exit('ranks have different gradients')


if __name__ == '__main__':
    main()
