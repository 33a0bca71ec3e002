"""Processes that begin with everything imported: one server imports it, and every process is a copy of it."""

from multiprocessing import get_context

import torch

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", "hypothesis", "ritz.classes", "ritz.solvers", "ritz.testing"])


def run_alone(code):
    """Run the code in a process that has imported only this, and nothing of papers or pictures; it must not fail."""
    process = CONTEXT.Process(target=exec, args=(code, {}))
    process.start()
    process.join()
    assert process.exitcode == 0


def run_ranks(work, *args):
    """`work(rank, *args)` in two processes at once."""
    torch.multiprocessing.start_processes(work, args, nprocs=2, start_method=CONTEXT.get_start_method())
