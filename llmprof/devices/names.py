"""One spelling for the names that drivers, torch and /proc/cpuinfo give to the same device."""

import re
from typing import Final

_DECORATION: Final = re.compile(
    r"\((r|tm)\)"
    r"|^\d+(st|nd|rd|th) gen "
    r"|^nvidia "
    r"| \d+-core processor.*$"
    r"| cpu @ .*$"
    r"| processor$"
)
"""What says nothing about the model: marks, generations, core counts that the model implies, clocks."""


def spelled_alike(name: str) -> str:
    """`NVIDIA H100 PCIe` and `H100 PCIe`, `Intel(R) Xeon(R) ... CPU @ 2.30GHz` and `Intel Xeon ...`.

    Nothing that tells one device from another is dropped: `MIG 1g.10gb`, `Laptop GPU`, `Ti`, `SUPER`.
    """
    text = " ".join(name.casefold().split())
    for _ in range(2):  # a mark may stand before another decoration
        text = " ".join(_DECORATION.sub("", text).split())
    return text
