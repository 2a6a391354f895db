"""Stand-in for `nvidia-smi` of driver 580: the XML, the persistence mode and the reset of an instance's GPUs.

The sandbox runs this file as a script, with the instance's folder as the first argument. It supports `-q -x`,
`--query-gpu=pci.bus_id,persistence_mode`, `-i ADDRESS -pm 0|1` and `--gpu-reset`. The shape of the XML is that of an
H200 with driver 580 (tests/recorded_gpu). Only a reset imports more than the standard library: it changes the cluster
through the control API, whose answer comes after the change.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sandbox.cluster.dcgmi import DRIVER, visible

LOST = "xid79"
"""Kind of the fault after which the driver cannot reach the GPU."""
ACTIONS = {"xid119": "Reset", "ecc": "Reboot"}
"""Recovery action of the driver by kind of the fault."""
PERSISTENCE_FILE = "persistence-off.json"
"""PCI addresses of the GPUs without persistence mode. A boot removes the file, because the image sets the mode."""
CONTROL_FILE = "control.json"
"""URL of the control API and the credentials of the sandbox, for the reset."""
IN_USE, NO_DEVICES, BAD_ARGUMENT = 255, 6, 2
_TWO_GPUS_APART = 0x0B


def address(index: int) -> str:
    """Return the PCI address of the GPU with this index, as nvidia-smi writes it."""
    return f"0000{pci_address(index).upper()}.0"


def pci_address(index: int) -> str:
    """Return the PCI address of the GPU with this index, as the kernel log writes it."""
    return f"0000:{0x10 + _TWO_GPUS_APART * index:02x}:00"


class Driver:
    """The driver of one instance as a process sees it. `seen` are the indices of the visible GPUs."""

    def __init__(self, folder: Path, variable: str | None) -> None:
        facts = json.loads((folder / "gpus.json").read_text())
        self.folder, self.gpus, self.faults = folder, list(facts["gpus"]), dict(facts["faults"])
        self.seen = visible(self.gpus, variable)

    def fault(self, index: int) -> str:
        """Return the kind of the GPU's fault; "" if it has none."""
        return str(self.faults.get(self.gpus[index], ""))

    def reached(self) -> list[int]:
        """Return the indices of the visible GPUs that the driver can reach."""
        return [index for index in self.seen if self.fault(index) != LOST]

    def lost_lines(self) -> Iterator[str]:
        """Yield the line of each visible GPU that the driver cannot reach."""
        for index in self.seen:
            if self.fault(index) == LOST:
                where = address(index)[4:].lower()
                yield f"Unable to determine the device handle for GPU{index}: {where}: Unknown Error"

    def without_persistence(self) -> set[str]:
        """Return the addresses of the GPUs without persistence mode."""
        path = self.folder / PERSISTENCE_FILE
        return set(json.loads(path.read_text())) if path.exists() else set()


def main(argv: list[str]) -> int:
    """Run one `nvidia-smi` command (`argv`: the instance's folder, then its arguments). Returns the exit code."""
    folder, *arguments = argv
    driver = Driver(Path(folder), os.environ.get("NVIDIA_VISIBLE_DEVICES"))
    if not driver.seen:
        print("No devices were found")
        return NO_DEVICES
    if arguments == ["-q", "-x"]:
        for line in driver.lost_lines():
            print(line)
        print(report(driver))
        return 0
    if any(word.startswith("--query-gpu=") for word in arguments):
        return _query(driver, arguments)
    if "-pm" in arguments:
        return _set_persistence(driver, arguments)
    if arguments == ["--gpu-reset"]:
        return _reset(driver)
    print(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help: {' '.join(arguments)}")
    return BAD_ARGUMENT


def report(driver: Driver) -> str:
    """Return the document of `nvidia-smi -q -x`, with the members that the project reads."""
    off = driver.without_persistence()
    gpus = "\n".join(_gpu(driver, index, off) for index in driver.reached())
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        f"\t<driver_version>{DRIVER}</driver_version>\n\t<cuda_version>13.0</cuda_version>\n"
        f"\t<attached_gpus>{len(driver.seen)}</attached_gpus>\n{gpus}\n</nvidia_smi_log>"
    )


def _gpu(driver: Driver, index: int, off: set[str]) -> str:
    fault, where = driver.fault(index), address(index)
    volatile = {"sram_correctable": 0, "sram_uncorrectable_parity": 0, "sram_uncorrectable_secded": 0}
    volatile |= {"dram_correctable": 0, "dram_uncorrectable": int(fault == "ecc")}
    members: dict[str, Any] = {
        "product_name": "NVIDIA A100-SXM4-40GB",
        "persistence_mode": "Disabled" if where in off else "Enabled",
        "uuid": driver.gpus[index],
        "minor_number": index,
        "gpu_recovery_action": ACTIONS.get(fault, "None"),
        "pci": {"pci_bus_id": where},
        "ecc_errors": {"volatile": volatile, "aggregate": {**volatile, "sram_threshold_exceeded": "No"}},
        "remapped_rows": {"remapped_row_pending": "No", "remapped_row_failure": "No"},
    }
    return f'\t<gpu id="{where}">\n{_xml(members, 2)}\n\t</gpu>'


def _xml(members: dict[str, Any], depth: int) -> str:
    tabs = "\t" * depth
    return "\n".join(
        f"{tabs}<{name}>\n{_xml(value, depth + 1)}\n{tabs}</{name}>"
        if isinstance(value, dict)
        else f"{tabs}<{name}>{escape(str(value))}</{name}>"
        for name, value in members.items()
    )


def _query(driver: Driver, arguments: list[str]) -> int:
    """Print the queried fields of each GPU as CSV. A field that the stand-in does not know is an error, as is real."""
    fields = next(word.partition("=")[2].split(",") for word in arguments if word.startswith("--query-gpu="))
    off = driver.without_persistence()
    for index in driver.reached():
        where = address(index)
        known = {
            "index": str(index),
            "uuid": driver.gpus[index],
            "pci.bus_id": where,
            "persistence_mode": "Disabled" if where in off else "Enabled",
        }
        if unknown := next((field for field in fields if field not in known), None):
            print(f'Field "{unknown}" is not a valid field to query.')
            return BAD_ARGUMENT
        print(", ".join(known[field] for field in fields))
    for line in driver.lost_lines():
        print(line)
    return 0


def _set_persistence(driver: Driver, arguments: list[str]) -> int:
    """Switch the persistence mode of the GPUs of `-i`, or of all GPUs."""
    options = dict(pairwise(arguments))
    wanted, mode = options.get("-i"), options["-pm"]
    chosen = {address(index) for index in driver.reached() if wanted in (None, str(index), address(index))}
    off = driver.without_persistence()
    after = off | chosen if mode == "0" else off - chosen
    (driver.folder / PERSISTENCE_FILE).write_text(json.dumps(sorted(after)))
    for where in sorted(chosen):
        print(f"{'Disabled' if mode == '0' else 'Enabled'} persistence mode for GPU {where}.")
    print("All done.")
    return 0


def _reset(driver: Driver) -> int:
    """Reset all GPUs. The driver refuses that while a process or the persistence mode uses a GPU."""
    kept = {address(index) for index in driver.reached()} - driver.without_persistence()
    if not kept:
        from sandbox import servers  # noqa: PLC0415 - slow to import, and no other command needs it

        control = json.loads((driver.folder / CONTROL_FILE).read_text())
        answer = servers.post(f"{control['url']}/_sandbox/reset", control["keys"], {"instance": control["instance"]})
        kept = {address(driver.gpus.index(gpu)) for gpu in answer["in_use"]}
    if kept:
        print("The following GPUs could not be reset:")
        for where in sorted(kept):
            print(f"  GPU {where}: In use by another client")
        return IN_USE
    for index in driver.seen:
        print(f"GPU {address(index)} was successfully reset.")
    print("All done.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
