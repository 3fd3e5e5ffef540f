"""Where well-known clients keep their configuration, on each system.

In: the name of a client.
Out: paths, the usual one first.
Never: a look at the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final, Literal

from pokayoke.errors import ConfigurationError

System = Literal["linux", "macos", "windows"]
_VS_CODE: Final = "{settings}/Code/User"


@dataclass(frozen=True, slots=True)
class _Location:
    """Paths of one client: `{home}`, `{settings}` and `{config}` stand for folders, see `_folders`.

    Attributes:
        paths: the usual one first.
        variable: the variable that names another folder for the first path's file.
    """

    paths: tuple[str, ...]
    variable: str = ""


_LOCATIONS: Final[Mapping[str, _Location]] = {
    "amazon-q": _Location(("{home}/.aws/amazonq/mcp.json",)),
    "amp": _Location(("{config}/amp/settings.json",)),
    "claude-code": _Location(("{home}/.claude.json",), "CLAUDE_CONFIG_DIR"),
    "claude-desktop": _Location(("{settings}/Claude/claude_desktop_config.json",)),
    "cline": _Location((f"{_VS_CODE}/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",)),
    "codex": _Location(("{home}/.codex/config.toml",), "CODEX_HOME"),
    "copilot-cli": _Location(("{home}/.copilot/mcp-config.json",)),
    "cursor": _Location(("{home}/.cursor/mcp.json",)),
    "gemini": _Location(("{home}/.gemini/settings.json",)),
    "kiro": _Location(("{home}/.kiro/settings/mcp.json",)),
    "lm-studio": _Location(("{home}/.lmstudio/mcp.json", "{home}/.cache/lm-studio/mcp.json")),
    "opencode": _Location(("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc")),
    "roo-code": _Location((f"{_VS_CODE}/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",)),
    "vscode": _Location((f"{_VS_CODE}/mcp.json", f"{_VS_CODE}/settings.json")),
    "windsurf": _Location(("{home}/.codeium/windsurf/mcp_config.json", "{home}/.codeium/mcp_config.json")),
    "zed": _Location(("{zed}/settings.json",)),
}

CLIENTS: Final = tuple(_LOCATIONS)
"""The clients whose configuration is found by their name."""


PROJECT_FILES: Final = (
    ".mcp.json",  # Claude Code
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".kiro/settings/mcp.json",
    ".roo/mcp.json",
    ".zed/settings.json",
    "opencode.json",
)
"""Where clients look for servers of one project, below its folder."""


def locate_configuration(client: str, system: System, home: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths at which a client keeps its configuration.

    Args:
        client: one of `CLIENTS`.
        system: whose paths are meant.
        home: the user's folder.
        environ: the environment variables; APPDATA, XDG_CONFIG_HOME and those of some clients move a file.

    Raises:
        ConfigurationError: the client is not known.
    """
    location = _LOCATIONS.get(client)
    if location is None:
        raise ConfigurationError(
            f"{client!r} is neither a file nor a client that is known by name. "
            f"Give the path of its configuration, or one of {', '.join(CLIENTS)}"
        )
    build = PureWindowsPath if system == "windows" else PurePosixPath
    folders = _folders(system, home, environ)
    paths = [str(build(path.format(**folders))) for path in location.paths]
    if moved := environ.get(location.variable):
        paths[0] = str(build(moved) / build(paths[0]).name)
    return tuple(paths)


def data_folder(system: System, home: str, environ: Mapping[str, str]) -> str:
    """Return the folder for the ledgers of clients: the user's folder for data of programs."""
    if system == "windows":
        return str(PureWindowsPath(environ.get("LOCALAPPDATA") or f"{home}/AppData/Local") / "pokayoke")
    if system == "macos":
        return f"{home}/Library/Application Support/pokayoke"
    return f"{environ.get('XDG_DATA_HOME') or f'{home}/.local/share'}/pokayoke"


def _folders(system: System, home: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the folders of a user: home, settings of desktop programs, settings of command-line programs, Zed's."""
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    if system == "windows":
        settings = environ.get("APPDATA") or f"{home}/AppData/Roaming"
        return {"home": home, "settings": settings, "config": f"{home}/.config", "zed": f"{settings}/Zed"}
    settings = f"{home}/Library/Application Support" if system == "macos" else config
    zed = f"{home}/.config/zed" if system == "macos" else f"{config}/zed"
    return {"home": home, "settings": settings, "config": config, "zed": zed}
