"""A hook of mkdocs: links to files of the repository that are no pages become names in the text, as
the site lies elsewhere. Links between pages are checked by mkdocs itself.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

CHINESE = re.compile(r"\.zh\.md$")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Returns a page's text with links that lead to pages of the site alone."""
    docs = Path(config["docs_dir"])
    folder = (docs / page.file.src_uri).parent

    def kept(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        if "://" in target:
            return link[0]
        place = (folder / target).resolve()
        if place.is_relative_to(docs) and place.is_file():
            return link[0]
        name = PurePosixPath(target).name
        return text if name in text else f"{text} (`{name}` in the repository)"

    return LINK.sub(kept, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Says of a Chinese page that it is Chinese, for what reads it aloud and for search engines."""
    if CHINESE.search(page.file.src_uri):
        return output.replace('<html lang="en"', '<html lang="zh-Hans"', 1)
    return output
