"""Readers for the recording formats of other programs, one small file per format."""

from pokayoke.replay.readers.json_lines import parse_map
from pokayoke.replay.readers.source import FORMATS, Source, SourceFormat, read_block

__all__ = ["FORMATS", "Source", "SourceFormat", "parse_map", "read_block"]
