"""The templates of cluster-conf/helm as text: the part of Helm's language that they use, and no more: values, `quote`, `add`, if, if not, else, range over a
list or a dict of texts, end. What they use beyond it is an error here. `k8s_render.py` prints the plain manifests of cluster-conf/kubernetes/baton.yaml,
`k8s_render.py tls` those of baton-tls.yaml."""
import glob
import os
import re
import sys

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(ROOT, "cluster-conf", "helm")
TLS = {"tls.enabled": True, "tls.certManager": True}
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: baton\n"


def values():
    with open(os.path.join(CHART, "values.yaml")) as f:
        return yaml.safe_load(f)


def look_up(path, scope):
    """.Values.a, $.Values.a (of which a range knows only the latter), or the variable of a range."""
    name, _, rest = path.lstrip(".").partition(".")
    if path.startswith("$"):
        at, path = (scope, rest) if name == "$" else (scope[name], rest)
    else:
        assert not any(k.startswith("$") for k in scope), f"{path} in a range: its dot is another"
        at, path = scope, path.lstrip(".")
    for name in filter(None, path.split(".")):
        at = at[name]  # a value that is not there is a mistake
    return at


def expression(text, scope):
    words = text.split()
    if words[0] == "add":
        return str(sum(int(look_up(w, scope)) if w.startswith((".", "$")) else int(w) for w in words[1:]))
    value = look_up(words[0], scope)
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    if words[1:] == ["|", "quote"]:
        return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert words[1:] == [], text
    return shown


BLOCK = re.compile(r"\{\{- (if (?:not )?\S+|range \$\w+ := list(?: \"[^\"]*\")+|range \$\w+, \$\w+ := dict(?: \"[^\"]*\" \"[^\"]*\")+|else|end) \}\}\n")


def scopes_of(words, scope):
    """In which scopes the body of a block is rendered, and whether its else is."""
    if words.startswith("if "):
        *_, path = words.split()
        yes = bool(look_up(path, scope)) != words.startswith("if not ")
        return [scope] if yes else [], not yes
    names, rest = words.removeprefix("range ").split(" := ")
    texts = re.findall(r'"([^"]*)"', rest)
    names = names.split(", ")
    rows = [(t,) for t in texts] if len(names) == 1 else sorted(zip(texts[::2], texts[1::2]))  # a dict is walked in the order of its keys
    return [{**scope, **dict(zip(names, row))} for row in rows], False


def body(lines, at):
    """The block that begins at a line: its lines, those of its else, and the line behind its end."""
    parts, depth = [[]], 0
    while True:
        block = BLOCK.fullmatch(lines[at])
        depth += block is not None and block[1].startswith(("if ", "range "))
        if block and depth == 0 and block[1] in ("else", "end"):
            if block[1] == "end":
                return parts[0], parts[1] if len(parts) > 1 else [], at + 1
            parts.append([])
        else:
            parts[-1].append(lines[at])
        depth -= block is not None and block[1] == "end"
        at += 1


def rendered(lines, scope):
    out, at = [], 0
    while at < len(lines):
        block = BLOCK.fullmatch(lines[at])
        if block is None:
            out.append(re.sub(r"\{\{ (.*?) \}\}", lambda m: expression(m[1], scope), lines[at]))
            at += 1
            continue
        assert block[1] not in ("else", "end"), lines[at]
        inner, otherwise, at = body(lines, at + 1)
        scopes, is_else = scopes_of(block[1], scope)
        for s in scopes:
            out += rendered(inner, s)
        if is_else:
            out += rendered(otherwise, scope)
    return out


def render(template, scope):
    text = "".join(rendered(template.splitlines(keepends=True), scope))
    assert "{{" not in text, "a form that is not known here"
    return text


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


def manifests(tls):
    said = "with TLS, and with its own values else" if tls else "with its own values"
    return f"# cluster-conf/helm {said}, in the namespace baton.\n" + NAMESPACE + "---\n" + chart(TLS if tls else None)


if __name__ == "__main__":
    print(manifests("tls" in sys.argv[1:]), end="")
