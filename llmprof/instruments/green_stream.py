"""A stream whose kernels run on some of a GPU's multiprocessors, asked of the driver itself.

For versions of torch whose green contexts have no streams. They make the partition the current context
instead, and a kernel that Triton has loaded belongs to the context before: the driver refuses it, or
starts it on the whole GPU. On a stream of the partition every kernel runs inside of it.
Source: CUDA Driver API, green contexts (streams of them since CUDA 12.5).
"""

import ctypes
from typing import Any, Final

from llmprof.errors import CapabilityError

_LIBRARY: Final = "libcuda.so.1"
_OF_MULTIPROCESSORS: Final = 1
"""CU_DEV_RESOURCE_TYPE_SM."""
_DEFAULT_STREAM: Final = 1
"""CU_GREEN_CTX_DEFAULT_STREAM: no other flag is allowed, and it is required."""
_NON_BLOCKING: Final = 1
"""CU_STREAM_NON_BLOCKING: as every stream of a green context must be."""
_RESOURCE_BYTES: Final = 512
"""Room for a CUdevResource, which has 144 bytes in CUDA 12 and has grown since."""


class GreenStream:
    """`num_sms` multiprocessors of a device; `address` is its CUstream. Both live as long as the process.

    A device is partitioned once or twice in one, and a stream that torch still knows must not go.
    """

    def __init__(self, index: int, num_sms: int, *, library: Any = None) -> None:
        """The device must have its primary context already, as it has after any work of torch.

        Raises:
            CapabilityError: this driver has no green contexts, or refuses this one.
        """
        self._driver = _opened() if library is None else library
        whole, part, rest = (ctypes.create_string_buffer(_RESOURCE_BYTES) for _ in range(3))
        self._call("cuDeviceGetDevResource", index, whole, _OF_MULTIPROCESSORS)
        groups = ctypes.c_uint(1)
        self._call(
            "cuDevSmResourceSplitByCount", part, ctypes.byref(groups), whole, rest, 0, num_sms
        )
        described, context, stream = (ctypes.c_void_p() for _ in range(3))
        self._call("cuDevResourceGenerateDesc", ctypes.byref(described), part, 1)
        self._call("cuGreenCtxCreate", ctypes.byref(context), described, index, _DEFAULT_STREAM)
        self._call("cuGreenCtxStreamCreate", ctypes.byref(stream), context, _NON_BLOCKING, 0)
        self.address = int(stream.value or 0)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._driver, name)
        except AttributeError as error:
            raise CapabilityError(f"this driver has no {name} (CUDA 12.5 has)") from error
        status = int(function(*arguments))
        if status:
            raise CapabilityError(f"{name} of the driver fails with CUDA error {status}")


def _opened() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise CapabilityError(f"the driver's {_LIBRARY} cannot be opened") from error
