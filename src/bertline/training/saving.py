"""Saving during training: a step waits for a copy in host memory only; a thread writes that to disk."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class HostCopy:
    """Copies states to host memory, each into the memory of the one before.

    A copy is valid until the next one is taken. Tensors that share memory in the state share it in the copy too, so
    that a file of the copy has the bytes that a file of the state would have.
    """

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def take(self, state: Any) -> Any:
        """Return the state with every tensor replaced by a copy on the host; all else but containers is shared.

        Args:
            state: Nested dicts, lists and tuples.
        """
        taken: dict[int, Tensor] = {}
        copied = self._copied(state, taken)
        if any(not tensor.is_cpu for tensor in _tensors(state)):
            torch.accelerator.synchronize()  # the copies above do not wait for one another
        return copied

    def _copied(self, value: Any, taken: dict[int, Tensor]) -> Any:
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            if storage.data_ptr() not in taken or not storage.nbytes():
                taken[storage.data_ptr()] = self._bytes_of(value, len(taken))
            buffer = taken[storage.data_ptr()].untyped_storage()
            empty = torch.empty(0, dtype=value.dtype)
            return empty.set_(buffer, value.storage_offset(), value.size(), value.stride())  # type: ignore[call-overload]
        if isinstance(value, dict):
            # A shallow copy first: a state dict has attributes, which belong to its file.
            result = copy.copy(value)
            result.update({key: self._copied(each, taken) for key, each in value.items()})
            return result
        if isinstance(value, (list, tuple)):
            return type(value)(self._copied(each, taken) for each in value)
        return value

    def _bytes_of(self, tensor: Tensor, index: int) -> Tensor:
        """Copy all the memory that a tensor is a part of into the buffer with this number."""
        storage = tensor.untyped_storage()
        source = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
        if index == len(self._buffers):
            self._buffers.append(torch.empty(0, dtype=torch.uint8))
        if self._buffers[index].numel() != source.numel():
            pinned = tensor.device.type == "cuda"
            self._buffers[index] = torch.empty(source.numel(), dtype=torch.uint8, pin_memory=pinned)
        return self._buffers[index].copy_(source, non_blocking=True)


class BackgroundWriter:
    """Runs one function at a time in a thread; its error is raised at the next call of `check`, `wait` or `start`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, write: Callable[[], object]) -> None:
        """Run `write` in a thread, which the end of the process waits for. Waits for the one before first."""
        self.wait()

        def run() -> None:
            try:
                write()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="saving")
        self._thread.start()

    def check(self) -> None:
        """Raise the error of the last function, if it failed."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Wait until nothing is being written, and raise the error, if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for each in inner for tensor in _tensors(each)]
