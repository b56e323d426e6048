"""Linux control groups, versions 1 and 2: what a container or a service leaves to this process."""

from collections.abc import Iterator
from pathlib import Path

from llmprof.instruments.system_file import read_text


def cpu_limit(root: Path = Path("/")) -> float | None:
    """Cores' worth of CPU time that the tightest group allows; None without a limit."""
    limits = [limit for group in _groups("cpu", root) if (limit := _cores(group)) is not None]
    return min(limits, default=None)


def quota_periods(root: Path = Path("/")) -> dict[str, tuple[int, int]] | None:
    """Periods so far in which each group with a limit used it up, and all of its periods.

    By folder, since the tightest group need not be the own one; None where no group has a limit or
    tells. What is used up counts for every process of the group. Source: Linux kernel
    documentation, sched-bwc (`nr_throttled`, `nr_periods` of cpu.stat).
    """
    found: dict[str, tuple[int, int]] = {}
    for group in _groups("cpu", root):
        stat = _stat(group / "cpu.stat")
        if _cores(group) is not None and "nr_throttled" in stat and "nr_periods" in stat:
            found[str(group)] = stat["nr_throttled"], stat["nr_periods"]
    return found or None


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The tightest limit of a group over this process; None without one."""
    limits = [limit for group in _groups("memory", root) if (limit := _limit_bytes(group))]
    return min(limits, default=None)


def memory_headroom_bytes(root: Path = Path("/")) -> int | None:
    """What is left below the tightest limit. Page cache that can be dropped counts as left."""
    rooms = []
    for group in _groups("memory", root):
        limit, used = _limit_bytes(group), _used_bytes(group)
        if limit is not None and used is not None:
            rooms.append(max(0, limit - used))
    return min(rooms, default=None)


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Folders of this process's group and of its ancestors, as far as they can be seen.

    In a container the path that the kernel tells may not exist below the mount, whose root is then
    the group itself: the walk up ends there in every case.
    """
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if names else "")
        group = mount / path.strip("/")
        while True:
            if group.is_dir():
                yield group
            if group == mount:
                break
            group = group.parent


def _cores(group: Path) -> float | None:
    version_2 = read_text(group / "cpu.max")
    if version_2 is not None:
        quota, period = version_2.split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or quota_us <= 0:
        return None
    return quota_us / period_us


def _limit_bytes(group: Path) -> int | None:
    """Version 1 writes 2^63 - 4096 for no limit: harmless where the smallest of all is taken."""
    version_2 = _number(group / "memory.max")
    return _number(group / "memory.limit_in_bytes") if version_2 is None else version_2


def _used_bytes(group: Path) -> int | None:
    version_2 = _number(group / "memory.current")
    used = _number(group / "memory.usage_in_bytes") if version_2 is None else version_2
    if used is None:
        return None
    cached = "inactive_file" if version_2 is not None else "total_inactive_file"
    return max(0, used - _stat(group / "memory.stat").get(cached, 0))


def _stat(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in (read_text(path) or "").splitlines())
    return {name: int(value) for name, value in pairs}


def _number(path: Path) -> int | None:
    text = read_text(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
