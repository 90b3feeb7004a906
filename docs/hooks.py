"""Pages of the site that lie beside docs/ and not in it, under the names by which pages link to them."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/RESULTS.md", "benchmarks/plots/*.svg")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take them in."""
    root = Path(config.config_file_path).parent
    for path in sorted(path for pattern in BESIDE for path in root.glob(pattern)):
        files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """What is above docs/ in the repository is in the site's own top folder."""
    return markdown if "/" in page.file.src_uri else markdown.replace("](../", "](")
