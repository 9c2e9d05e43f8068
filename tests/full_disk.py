"""Disks that are full, or fail, for one process and its children, and for no others.

A library loaded before libc (`LD_PRELOAD`) refuses calls that need space in a directory as long as
a file named `<directory>.full` exists. As the kernel does, it first writes the part that still
fits. So any user can fill a disk; a small tmpfs needs root. A file cannot be opened (EACCES) or
read (EIO) as long as `<file>.denied` or `<file>.broken` exists, not even by root. The size of
`<file>.broken` in bytes is the number of reads that still succeed in each process.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FOLDERS: Final = "FULL_DISK_FOLDERS"
"""The variable with the directories, separated by colons."""
_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int is_full(const char *path)
{
    const char *folder = getenv("FULL_DISK_FOLDERS");
    char mark[PATH_MAX + 16];
    while (folder != NULL && *folder != 0) {
        const char *end = strchrnul(folder, ':');
        size_t size = end - folder;
        if (strncmp(path, folder, size) == 0 && (path[size] == '/' || path[size] == 0)) {
            snprintf(mark, sizeof mark, "%.*s.full", (int)size, folder);
            return access(mark, F_OK) == 0;
        }
        folder = *end == ':' ? end + 1 : end;
    }
    return 0;
}

static int has_mark(const char *path, const char *suffix)
{
    char mark[PATH_MAX + 16];
    snprintf(mark, sizeof mark, "%s.%s", path, suffix);
    return access(mark, F_OK) == 0;
}

static int has_path(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return 1;
}

static int is_full_for(int file)
{
    char path[PATH_MAX];
    return has_path(file, path) && is_full(path);
}

ssize_t pread64(int file, void *data, size_t size, off64_t position)
{
    ssize_t (*next)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    static int reads = 0;
    char path[PATH_MAX], mark[PATH_MAX + 16];
    struct stat64 found;
    if (has_path(file, path)) {
        snprintf(mark, sizeof mark, "%s.broken", path);
        if (stat64(mark, &found) == 0 && reads++ >= found.st_size) {
            errno = EIO;
            return -1;
        }
    }
    return next(file, data, size, position);
}

ssize_t pread(int file, void *data, size_t size, off_t position)
{
    return pread64(file, data, size, position);
}

static __thread int has_taken_some = 0;

ssize_t pwrite64(int file, const void *data, size_t size, off64_t position)
{
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    struct stat64 found;
    if (fstat64(file, &found) == 0 && position + (off64_t)size > found.st_size
        && is_full_for(file)) {
        has_taken_some = !has_taken_some && size > 1;
        if (!has_taken_some) {
            errno = ENOSPC;
            return -1;
        }
        size /= 2;
    }
    return next(file, data, size, position);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t position)
{
    return pwrite64(file, data, size, position);
}

int open64(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & O_CREAT && access(path, F_OK) != 0 && is_full(path)) {
        errno = ENOSPC;
        return -1;
    }
    if (has_mark(path, "denied")) {
        errno = EACCES;
        return -1;
    }
    return next(path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
    if (is_full(path)) {
        errno = ENOSPC;
        return -1;
    }
    return next(path, mode);
}

int statvfs64(const char *path, struct statvfs64 *found)
{
    int (*next)(const char *, struct statvfs64 *) = dlsym(RTLD_NEXT, "statvfs64");
    int result = next(path, found);
    if (result == 0 && is_full(path))
        found->f_bavail = found->f_bfree = 0;
    return result;
}
"""


def why_not() -> str:
    """Return the reason why disks cannot be filled here; an empty string if there is none."""
    return "" if shutil.which("cc") else "no C compiler, for a library that fills up a disk"


def environ(build: Path, folders: Iterable[Path]) -> dict[str, str]:
    """Return the variables of a process for which these directories can be full."""
    source, library = build / "full_disk.c", build / "full_disk.so"
    source.write_text(_SOURCE)
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True)
    return {"LD_PRELOAD": str(library), FOLDERS: os.pathsep.join(map(str, folders))}


def fill(folder: Path) -> None:
    """Make the disk of a directory full."""
    _mark(folder).touch()


def free(folder: Path) -> None:
    """Make room again."""
    _mark(folder).unlink(missing_ok=True)


def _mark(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.full")
