"""The built pages as a reader's browser has them: their names, links and texts."""
import html.parser
import os


class Page(html.parser.HTMLParser):
    """ids: fragments; links: hyperlinks; loads: what a browser fetches with the page; prose: the texts of paragraphs; handlers: attributes
    that are programs or name more to load."""
    LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("object", "data")}

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads, self.prose, self.inside, self.title, self.handlers = set(), [], [], [], [], None, 0
        with open(path) as f:
            self.feed(f.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.add(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif (tag, name) in self.LOADS:
                self.loads.append(value)
            elif name.startswith("on") or name == "srcset":
                self.handlers += 1
        if tag in ("p", "td", "li"):
            self.prose.append("")
        self.inside.append(tag)
        if tag in ("meta", "link", "img", "input", "br", "hr"):
            self.inside.pop()

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if self.title is None and self.inside[-1:] == ["h1"]:
            self.title = data.strip()
        if self.prose and {"p", "td", "li"} & set(self.inside) and not {"code", "pre", "script", "nav"} & set(self.inside):
            self.prose[-1] += data


def read_all(folder):
    """{path below folder: Page}"""
    out = {}
    for top, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(top, name)
                out[os.path.relpath(path, folder)] = Page(path)
    return out
