"""Checks the links of the book, in its chapters (docs/*.md) and in the pages that mdBook makes from the chapters.

A chapter is in SUMMARY.md, its relative links lead to files of the checkout, and their anchors to headings. A page's links lead
to files of the book and to ids in them, or out of docs/ to files of the checkout. Nothing is fetched.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


class Page(HTMLParser):
    """Parser that collects a page's links, and its ids, to which other pages may link."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src") and value and tag in ("a", "img", "link", "script"):
                self.links.append(value)


def outside(link):
    return re.match(r"[a-z][a-z+.-]*:|//", link)


def prose(text):
    """The text of a chapter without its code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def chapters(docs):
    """Errors in the chapters' links, a line each."""
    summary = (docs / "SUMMARY.md").read_text()
    for chapter in sorted(docs.glob("*.md")):
        if chapter.name != "SUMMARY.md" and f"({chapter.name})" not in summary:
            yield f"{chapter}: not in SUMMARY.md"
        for link in LINK.findall(prose(chapter.read_text())):
            target = unquote(link.split("#")[0])
            if not outside(link) and target and not (chapter.parent / target).exists():
                yield f"{chapter}: {link} leads nowhere"


def pages(docs, book):
    """Errors in the pages' links, a line each."""
    found = {path.resolve(): Page(path.read_text()) for path in sorted(book.rglob("*.html"))}
    for path, page in found.items():
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in page.links:
            if outside(link) or not link:
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            if target.is_relative_to(book.resolve()):
                if not target.exists():
                    yield f"{path.name}: {link} leads nowhere"
                elif anchor and target in found and anchor not in found[target].ids:
                    yield f"{path.name}: {link} has no such heading"
            elif not (docs / path.relative_to(book.resolve()).parent / name.replace(".html", ".md")).exists():
                yield f"{path.name}: {link} leads nowhere in the checkout"


def main():
    docs, book = (Path(argument) for argument in sys.argv[1:3])
    wrong = [*chapters(docs), *pages(docs, book)]
    for line in wrong:
        print(line, file=sys.stderr)
    links = sum(len(LINK.findall(prose(chapter.read_text()))) for chapter in docs.glob("*.md"))
    print(f"{links} links of {len(list(docs.glob('*.md')))} chapters, {len(wrong)} broken")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
