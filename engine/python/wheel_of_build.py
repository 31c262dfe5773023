# SPDX-License-Identifier: Apache-2.0
"""The build backend of pip (PEP 517) for this package: `make python`, and a wheel of its result.

The wheel's extension looks for libcollrun where this build lies, unless LD_LIBRARY_PATH has one, as
under `command:` of a job.
"""

import base64
import hashlib
import os
import subprocess
import sysconfig
import zipfile

here = os.path.dirname(os.path.abspath(__file__))
top = os.path.dirname(os.path.dirname(here))


def _make(*arguments):
    done = subprocess.run(["make", "-s", "-C", top, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"make {' '.join(arguments)} failed in {top}")
    return done.stdout.split()


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version, package = _make("python-where")
    _make("python-wheel")
    package = os.path.join(top, package)
    if not os.path.exists(os.path.join(package, "_collrun.abi3.so")):
        raise SystemExit("the extension was not built: install Python's headers (python3-dev)")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp311-abi3-{platform}"
    name = f"collrun-{version}-{tag}.whl"
    info = f"collrun-{version}.dist-info"
    files = {}
    for folder, _, names in os.walk(package):
        for file in names:
            path = os.path.join(folder, file)
            if not file.endswith(".pyc"):
                with open(path, "rb") as f:
                    files["collrun/" + os.path.relpath(path, package)] = f.read()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: collrun\nVersion: {version}\nRequires-Python: >=3.11\n"
        "License: Apache-2.0\nSummary: Collective operations and messages between the ranks of a collrun job\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: collrun\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            wheel.writestr(entry, data)
    return name
