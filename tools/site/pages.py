#!/usr/bin/python3
"""Puts the pages of the site into a folder for mkdocs: those of docs/, the README files they name, and the reference that is made of the built
programs. Usage: pages.py BUILD FOLDER. Links between pages stay what they are; a file or folder beyond docs/ that one links to goes along, under
files/. What a forge's markdown allows and mkdocs' does not is written as both read it."""
import os
import re
import shutil
import sys

import tables

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FILE_BYTES_MAX = 1 << 20


class Site:
    def __init__(self, folder):
        self.folder, self.files = folder, set()
        self.pages = {}  # path in the repository: path in the site
        for top, _, names in os.walk(os.path.join(ROOT, "docs")):
            for name in names:
                path = os.path.relpath(os.path.join(top, name), ROOT)
                if name.endswith(".md"):
                    self.pages[path] = os.path.relpath(path, "docs")
        self.pages["README.md"] = "overview.md"  # mkdocs takes a README for the index of its folder
        for path in ("models/fable/README.md", "models/fable/SOURCES.md", "models/fable-embed/README.md"):
            self.pages[path] = path
        self.pages["docs/decisions"] = "decisions/index.md"

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)

    def target(self, path, named_in):
        """Where in the site what is at this path of the repository lies."""
        if path in self.pages:
            return self.pages[path]
        where = os.path.join(ROOT, path)
        if not os.path.exists(where) or path.startswith(".."):
            raise SystemExit(f"docs: {named_in} links to {path}, which is not there")
        out = os.path.join("files", path)
        if path in self.files:
            return os.path.join(out, "index.md") if os.path.isdir(where) else out
        self.files.add(path)
        if not os.path.isdir(where):
            if os.path.getsize(where) > FILE_BYTES_MAX or path.endswith(".md"):
                raise SystemExit(f"docs: {named_in} links to {path}, which is no page of the site and no small file: give it a line in pages.py")
            os.makedirs(os.path.join(self.folder, os.path.dirname(out)), exist_ok=True)
            shutil.copyfile(where, os.path.join(self.folder, out))
            return out
        if any(n.endswith(".md") for n in os.listdir(where)):
            raise SystemExit(f"docs: {named_in} links to {path}, a folder of pages: link to the pages")
        inside = sorted(n for n in os.listdir(where) if os.path.isfile(os.path.join(where, n)) and not n.startswith("."))
        for name in inside:
            self.target(os.path.join(path, name), named_in)
        self.write(os.path.join(out, "index.md"), f"# {path}\n\n" + "".join(f"- [{n}]({n})\n" for n in inside))
        return os.path.join(out, "index.md")

    def page(self, path):
        with open(os.path.join(ROOT, path)) as f:
            text = f.read()
        here = self.pages[path]

        def link(m):
            name, mark, fragment = m[2].partition("#")
            if not name or re.match(r"[a-z+]+:", name):
                return m[0]
            to = self.target(os.path.normpath(os.path.join(os.path.dirname(path), name)), path)
            return m[1] + os.path.relpath(to, os.path.dirname(here) or ".") + mark + fragment + m[3]
        self.write(here, as_both_read(text, link))

    def decisions(self):
        lines = ["# Decisions", "", "What was decided, and why, newest first.", ""]
        for path in sorted((p for p in self.pages if re.match(r"docs/decisions/\d", p)), reverse=True):
            with open(os.path.join(ROOT, path)) as f:
                title = f.readline().lstrip("# ").strip()
            name = os.path.basename(path)
            lines.append(f"- [{title}]({name}) ({name[:10]})")
        self.write("decisions/index.md", "\n".join(lines) + "\n")


def as_both_read(text, link):
    """The links that are none of code's, and two liberties of a forge: a list right below a paragraph, and \\| in the code of a table."""
    out, fence, before = [], False, ""
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fence = not fence
        elif not fence:
            parts = re.split(r"(`[^`]*`)", line)  # every second one is code
            table = line.startswith("|")
            line = "".join(p.replace("\\|", "|") if i % 2 and table else p if i % 2 else p for i, p in enumerate(parts))
            line = LINK.sub(link, line)
            if re.match(r"(- |\d+\. )", line) and before.strip() and not re.match(r"(- |\d+\. | )", before):
                out.append("")
        before = line
        out.append(line)
    return "\n".join(out)


def main():
    build, folder = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    site = Site(folder)
    for path in [p for p in site.pages if p.endswith(".md")]:
        site.page(path)
    site.decisions()
    for name, text in tables.pages(os.path.join(build, "bin")).items():
        site.write(os.path.join("reference", name), text)
    shutil.copyfile(os.path.join(ROOT, "common", "net", "web", "icon.svg"), os.path.join(folder, "icon.svg"))


main()
