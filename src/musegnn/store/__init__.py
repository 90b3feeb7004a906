"""Files: raw arrays in a folder beside a JSON header, written whole or not at all. Knows no graph."""

from musegnn.store.arrays import ArraySpec as ArraySpec
from musegnn.store.arrays import ArrayWriter as ArrayWriter
from musegnn.store.arrays import digest_array as digest_array
from musegnn.store.folder import FolderWriter as FolderWriter
from musegnn.store.folder import StoredFolder as StoredFolder
from musegnn.store.folder import file_errors as file_errors
from musegnn.store.folder import kind_of as kind_of
from musegnn.store.header import FORMAT_VERSION as FORMAT_VERSION
from musegnn.store.header import HEADER_NAME as HEADER_NAME
from musegnn.store.header import Header as Header
from musegnn.store.journal import Journal as Journal
