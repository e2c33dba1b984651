"""Names the platform: the wheel carries programs, and no code for a version of Python."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(BuildHookInterface):
    def initialize(self, version: str, build_data: dict) -> None:
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['TERRACE_PLATFORM']}"
