"""Triton's interpreter in place of a GPU: chosen before triton is imported, for a whole process.

`tests/unit/engine/kernels/test_triton_kernels.py` starts that process; elsewhere these tests are not
collected.
"""

import os
from typing import Any

collect_ignore_glob: list[str] = []

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob.append("test_*.py")
else:
    from triton.runtime import interpreter

    _patch = interpreter._patch_lang_tensor

    def _patch_for_new_numpy(tensor: Any, scope: Any) -> None:
        """The interpreter of triton 3.6 makes loop bounds of arrays, which numpy 2.4 refuses."""
        _patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _patch_for_new_numpy
