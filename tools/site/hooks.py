"""What mkdocs.yml cannot say: the names of headings as a forge makes them, and the parts of the menu that are found."""
import re

RAW = re.compile(r"[^\w\- ]")


def forge_name(text, separator):
    """The fragment of a heading: letters, digits, _ and - stay, a blank is a dash."""
    return RAW.sub("", text.strip().lower()).replace(" ", separator)


def named(nav):
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, list):
            yield from named(value)
        else:
            yield value


def on_config(config):
    config["mdx_configs"]["toc"] = {"slugify": forge_name}
    return config


def on_files(files, config):
    pages = [f.src_uri for f in files.documentation_pages()]
    last = next(iter(config["nav"][-1].values()))
    for entry in last:
        if isinstance(entry, dict) and "Decisions" in entry:
            entry["Decisions"] = ["decisions/index.md"] + sorted((p for p in pages if re.match(r"decisions/\d", p)), reverse=True)
    known = set(named(config["nav"]))
    last += sorted(p for p in pages if p not in known and not p.startswith("files/"))
    return files


def on_post_build(config):
    """No map of a site that has no address."""
    import os
    for name in ("sitemap.xml", "sitemap.xml.gz"):
        path = os.path.join(config["site_dir"], name)
        if os.path.exists(path):
            os.remove(path)
