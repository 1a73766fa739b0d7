"""The templates of cluster-conf/helm as text: the part of Helm's language that they use, and no more: values, `quote`, `add`, if and end. What they use
beyond it is an error here. `k8s_render.py` prints the plain manifests of cluster-conf/kubernetes/baton.yaml."""
import glob
import os
import re

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(ROOT, "cluster-conf", "helm")
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: baton\n"


def values():
    with open(os.path.join(CHART, "values.yaml")) as f:
        return yaml.safe_load(f)


def look_up(path, scope):
    at = scope
    for name in path.lstrip(".").split("."):
        at = at[name]  # a value that is not there is a mistake
    return at


def expression(text, scope):
    words = text.split()
    if words[0] == "add":
        return str(sum(int(look_up(w, scope)) if w.startswith(".") else int(w) for w in words[1:]))
    value = look_up(words[0], scope)
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    if words[1:] == ["|", "quote"]:
        return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert words[1:] == [], text
    return shown


def render(template, scope):
    out, shows = [], [True]
    for line in template.splitlines(keepends=True):
        block = re.fullmatch(r"\{\{- (if (\.\S+)|end) \}\}\n", line)
        if block and block[2]:
            shows.append(shows[-1] and bool(look_up(block[2], scope)))
        elif block:
            shows.pop()
        elif shows[-1]:
            out.append(re.sub(r"\{\{ (.*?) \}\}", lambda m: expression(m[1], scope), line))
    assert len(shows) == 1 and "{{" not in "".join(out), "a block that does not end, or a form that is not known here"
    return "".join(out)


def chart(changes=None, name="baton", namespace="baton"):
    """Every template, rendered, as one text of documents. changes: {"model.pvc": "models"}."""
    v = values()
    for path, value in (changes or {}).items():
        *way, last = path.split(".")
        at = v
        for part in way:
            at = at[part]
        assert last in at, path
        at[last] = value
    scope = {"Values": v, "Release": {"Name": name, "Namespace": namespace}}
    texts = []
    for path in sorted(glob.glob(os.path.join(CHART, "templates", "*.yaml"))):
        with open(path) as f:
            texts.append(render(f.read(), scope))
    return "---\n".join(text for text in texts if text.strip())


if __name__ == "__main__":
    print("# cluster-conf/helm with its own values, in the namespace baton.\n" + NAMESPACE + "---\n" + chart(), end="")
