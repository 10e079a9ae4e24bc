"""Archives of data sets: zip files with checksums of their contents, which another checkout verifies and opens."""

import contextlib
import hashlib
import os
import shutil
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import psutil

from sharebench.core.files import Refusal

SUFFIX = ".zip"
CHECKSUMS = "checksums.sha256"
MANIFEST = "manifest.json"
PACKED_NAME = "data.zip"
"""The archive in a published data set: all of it, while the files next to it are for reading."""
MAX_UNPACKED_BYTES = 8 * 2**30
MAX_UNPACKED_RATIO = 200
UNSUSPICIOUS_BYTES = 64 * 2**20
"""Only larger contents are held to the ratio. A study takes about 10 times the size of its archive."""
MEASURED_FOLDERS = ("cells", "nodes", "calibration")
"""Folders of measured files: where a data set has checksums, every file in these must have one."""
OTHER_READ = ("tables", MANIFEST, CHECKSUMS, PACKED_NAME)
"""What else is read of a data set."""
MAX_FILE_BYTES = 2**30
UNPACKED_FOLDER = Path(".snakemake/sharebench/archives")
"""Archives are unpacked here, next to Snakemake's other caches, each under the digest of its file."""


class ArchiveError(Refusal):
    """The file is not an archive of a data set, or has been changed; one line."""


def write(target: Path, files: Mapping[str, Path | bytes], epoch_seconds: float) -> None:
    """Write a zip of `files` (name in the zip → file or content) with their checksums, completely or not at all.

    The same files and time give the same bytes. Raises OSError.
    """
    moment = time.gmtime(max(epoch_seconds, 315_532_800))[:6]  # zip knows no time before 1980
    temporary = target.with_name(f".{target.name}.part")
    sums: list[str] = []
    try:
        temporary.unlink(missing_ok=True)
        with zipfile.ZipFile(temporary, "x") as packed:
            # One file at a time: telemetry may have gigabytes.
            for name in [*sorted(files), CHECKSUMS]:
                source = "".join(sums).encode() if name == CHECKSUMS else files[name]
                content = source if isinstance(source, bytes) else source.read_bytes()
                sums.append(checksum_line(hashlib.sha256(content).hexdigest(), name))
                entry = zipfile.ZipInfo(name, moment)
                entry.external_attr = 0o644 << 16
                entry.create_system = 3
                packed.writestr(entry, content, zipfile.ZIP_DEFLATED)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def unpack(path: Path) -> Path:
    """Unpack an archive, unless that was done and nothing has changed since; returns the folder with its contents.

    Every byte is checked, each time. Raises ArchiveError.
    """
    folder = UNPACKED_FOLDER / _digest(path)[:32]
    building = UNPACKED_FOLDER / f"{folder.name}.{os.getpid()}"
    for leftover in UNPACKED_FOLDER.glob(f"{folder.name}.*"):
        if not psutil.pid_exists(int(leftover.suffix[1:])):
            shutil.rmtree(leftover, ignore_errors=True)
    try:
        with zipfile.ZipFile(path) as packed:
            _refuse_zip_bomb(packed, path)
            sums = _checksums(packed, path)
            if folder.is_dir():
                with contextlib.suppress(ArchiveError):
                    _check_folder(folder, sums)
                    return folder
                shutil.rmtree(folder)
            for name, expected in sums.items():
                _unpack_file(packed, name, path, building / name)
                if _digest(building / name) != expected:
                    raise ArchiveError(f"{path}: {name} is not what was archived; get the archive again")
            unlisted = [name for name in packed.namelist() if name not in sums and name != CHECKSUMS]
            if unlisted:
                raise ArchiveError(f"{path}: {unlisted[0]!r} is not in its {CHECKSUMS}; get the archive again")
        try:
            building.rename(folder)
        except OSError:
            # Another run may have unpacked the same bytes meanwhile.
            if not folder.is_dir():
                raise
    except zipfile.BadZipFile as error:
        raise ArchiveError(f"{path}: damaged ({error}); get the archive again") from None
    except OSError as error:
        raise ArchiveError(f"{path} cannot be unpacked: {error.filename}: {error.strerror}") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def _refuse_zip_bomb(packed: zipfile.ZipFile, path: Path) -> None:
    """Raise ArchiveError for contents larger than any study's. No more than the declared sizes is ever read."""
    total = sum(entry.file_size for entry in packed.infolist())
    if total > MAX_UNPACKED_BYTES or total > max(MAX_UNPACKED_RATIO * path.stat().st_size, UNSUSPICIOUS_BYTES):
        raise ArchiveError(
            f"{path}: would unpack to {total / 2**20:.0f} MiB from {path.stat().st_size / 2**20:.1f} MiB, "
            "which no archive of a study does; if you trust it, unpack it by hand and give the folder"
        )


def verified_folder(path: Path) -> Path:
    """The folder of the data set at `path`, unpacked where it is an archive or is published as one.

    A folder with checksums is checked against them. Raises ArchiveError.
    """
    if path.is_file():
        return unpack(path)
    return unpack(path / PACKED_NAME) if PACKED_NAME in check_folder(path) else path


def check_folder(path: Path) -> Mapping[str, str]:
    """Check a folder against its checksums, and return them; none where it has none. Raises ArchiveError."""
    _refuse_irregular_files(path)
    if (sums := read_checksums(path)) is None:
        return {}
    _check_folder(path, sums)
    return sums


def read_checksums(folder: Path) -> Mapping[str, str] | None:
    """Name → digest; None where the folder has no checksums. Raises ArchiveError."""
    path = folder / CHECKSUMS
    return _parse_checksums(path.read_text(encoding="utf-8", errors="replace"), str(path)) if path.is_file() else None


def _refuse_irregular_files(path: Path) -> None:
    """Raise ArchiveError for a link, a device, a pipe or a huge file where a data set has files that are read."""
    for read in (path / name for name in (*MEASURED_FOLDERS, *OTHER_READ)):
        for file in (read, *read.rglob("*")) if read.is_symlink() or read.exists() else ():
            if file.is_symlink() or not file.is_dir():
                _check_regular(file)


def _check_regular(file: Path) -> None:
    """Raise ArchiveError for what is not a file of bounded size. Raises OSError."""
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ArchiveError(f"{file} is a link or a device, not a file of a data set; copy the file there, or remove it")
    if status.st_size > MAX_FILE_BYTES:
        raise ArchiveError(f"{file} has {status.st_size >> 20} MiB, which no file of a data set has; remove it")


def _check_folder(path: Path, sums: Mapping[str, str]) -> None:
    """Raise ArchiveError unless the folder has the files of these checksums, and no other measured files."""
    for name, expected in sums.items():
        try:
            _check_regular(path / name)
            digest = _digest(path / name)
        except OSError:
            raise ArchiveError(f"{path} lacks {name}; get the data set again") from None
        if digest != expected:
            raise ArchiveError(f"{path}: {name} is not what was published; get the data set again")
    read = (path / MANIFEST, *(file for folder in MEASURED_FOLDERS for file in (path / folder).rglob("*")))
    unlisted = sorted({file.relative_to(path).as_posix() for file in read if file.is_file()} - sums.keys())
    if unlisted:
        raise ArchiveError(f"{path}: {unlisted[0]} is not in its {CHECKSUMS}; get the data set again")


def checksum_line(digest: str, name: str) -> str:
    """A line of a list of checksums, as sha256sum reads it."""
    return f"{digest}  {name}\n"


def checksum_lines(files: Mapping[str, bytes]) -> str:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    return "".join(checksum_line(digest, name) for name, digest in digests.items())


def _checksums(packed: zipfile.ZipFile, path: Path) -> dict[str, str]:
    """Name → digest. Raises ArchiveError for a name that leads out of the folder."""
    if CHECKSUMS not in packed.namelist():
        raise ArchiveError(f"{path} has no {CHECKSUMS}; give an archive that `snakemake archive` made")
    with _refuse_damage(CHECKSUMS, path):
        sums = _parse_checksums(packed.read(CHECKSUMS).decode(errors="replace"), f"{path}: {CHECKSUMS}")
    if MANIFEST not in sums:
        raise ArchiveError(
            f"{path}: {CHECKSUMS} lists no {MANIFEST}, so it is not of a data set; get the archive again"
        )
    return sums


def _parse_checksums(text: str, where: str) -> dict[str, str]:
    sums = {}
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        place = PurePosixPath(name)
        is_plain = name.isprintable() and place.parts and str(place) == name
        if not is_plain or place.is_absolute() or ".." in place.parts:
            raise ArchiveError(f"{where} is not what was archived; get the archive again")
        sums[name] = digest
    return sums


def _unpack_file(packed: zipfile.ZipFile, name: str, path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with _refuse_damage(name, path), packed.open(name) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _refuse_damage(name: str, path: Path) -> Iterator[None]:
    try:
        yield
    except KeyError:
        raise ArchiveError(f"{path} lacks {name}; get the archive again") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise ArchiveError(f"{path}: {name} is not what was archived; get the archive again") from None
