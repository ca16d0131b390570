#!/usr/bin/env python3
"""packaging.py ROOT BUILD XDIT LIBRARY - packages, the container, and examples for clusters: they
parse, name flags that the program has, and packages of the libraries that it needs. Speaks TAP."""
import configparser
import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from tap import check, done

ROOT, BUILD, XDIT = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
BINARIES = [pathlib.Path(p).resolve() for p in sys.argv[3:]]
HOME = ROOT / "packaging"


def skip(what, why):
    check(f"{what} # SKIP {why}", True)


def flags_of(command):
    text = subprocess.run([XDIT, command, "--help", "all"], capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "100"}).stdout
    return set(re.findall(r"--([a-z0-9_]+)", text))


def unknown(words):
    """Flags in the words of a command line of xdit that the program does not have."""
    words = [w for w in words if w != "xdit"]
    known = flags_of(words[0])
    given = [w[2:].split("=")[0].replace("-", "_") for w in words if w.startswith("--")]
    return [f for f in given if f not in known]


def cluster_files(yaml):
    jobs = list(yaml.safe_load_all((HOME / "kubernetes" / "generate.yaml").read_text()))
    spec = jobs[0]["spec"]["mpiReplicaSpecs"]
    launcher = spec["Launcher"]["template"]["spec"]["containers"][0]["command"]
    at = launcher.index("xdit")
    ranks = int(launcher[launcher.index("-n") + 1])
    check("MPIJob: its kind", jobs[0]["apiVersion"] == "kubeflow.org/v2beta1" and
          jobs[0]["kind"] == "MPIJob")
    check("MPIJob: flags", not unknown(launcher[at:]), launcher)
    check("MPIJob: as many slots as ranks",
          ranks == spec["Worker"]["replicas"] * jobs[0]["spec"]["slotsPerWorker"], ranks)
    pod = spec["Worker"]["template"]["spec"]
    check("MPIJob: volumes", {m["name"] for m in pod["containers"][0]["volumeMounts"]} ==
          {v["name"] for v in pod["volumes"]})
    server, service = yaml.safe_load_all((HOME / "kubernetes" / "server.yaml").read_text())
    pod = server["spec"]["template"]["spec"]
    box = pod["containers"][0]
    check("Deployment: flags", not unknown(box["args"]), box["args"])
    check("Deployment: volumes", {m["name"] for m in box["volumeMounts"]} ==
          {v["name"] for v in pod["volumes"]})
    port = box["ports"][0]["containerPort"]
    check("Deployment: one port", str(port) in box["args"] and
          box["readinessProbe"]["httpGet"]["port"] == port ==
          service["spec"]["ports"][0]["targetPort"])
    check("Service: finds the pods", service["spec"]["selector"] ==
          server["spec"]["template"]["metadata"]["labels"])


def autoscaling(yaml):
    scaled = yaml.safe_load((HOME / "kubernetes" / "autoscale.yaml").read_text())
    server = next(yaml.safe_load_all((HOME / "kubernetes" / "server.yaml").read_text()))
    check("KEDA: scales the Deployment", scaled["kind"] == "ScaledObject" and
          scaled["spec"]["scaleTargetRef"]["name"] == server["metadata"]["name"])
    metric = re.search(r"xdit_(\w+)", scaled["spec"]["triggers"][0]["metadata"]["query"])[1]
    status = (ROOT / "app" / "serve" / "api_status.c").read_text()
    check("KEDA: a metric of the server", f'add_metric(b, "{metric}"' in status, metric)


def rendered(text, values):
    """A template of the chart with its values: as much of Helm's language as the chart uses."""
    def value(path):
        found = {"Release": {"Name": "test", "Namespace": "default"}, "Values": values}
        for name in path.strip(".").split("."):
            found = found[name]
        return found

    def expression(match):
        words = match[1].strip("- ").split()
        if words[0] == "add":
            return str(value(words[1]) + int(words[2]))
        if words[0] == "toJson":
            return json.dumps(value(words[1]))
        return json.dumps(str(value(words[0]))) if words[1:] == ["|", "quote"] else \
            str(value(words[0]))

    def block(match):
        return match[2] if value(match[1]) else ""

    def loop(match):
        return "".join(match[2].replace("{{ . | quote }}", json.dumps(v))
                       for v in value(match[1]))

    text = re.sub(r"\{\{- if (\S+) \}\}(.*?)\{\{- end \}\}", block, text, flags=re.S)
    text = re.sub(r"\s*\{\{- range (\S+) \}\}(.*?)\s*\{\{- end \}\}", loop, text, flags=re.S)
    return re.sub(r"\{\{(.*?)\}\}", expression, text)


def matches(schema, value, path=""):
    """Complaints of a JSON schema, of the keywords that the chart's schema uses."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if "type" in schema and (not isinstance(value, kinds[schema["type"]]) or
                             (schema["type"] == "integer" and isinstance(value, bool))):
        return [f"{path}: {schema['type']}"]
    said = []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        said += [f"{path}.{k}: missing" for k in schema.get("required", []) if k not in value]
        for k, v in value.items():
            if k in known:
                said += matches(known[k], v, f"{path}.{k}")
            elif schema.get("additionalProperties") is False:
                said.append(f"{path}.{k}: unknown")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        said.append(f"{path}: {schema['pattern']}")
    if isinstance(value, int) and value < schema.get("minimum", value):
        said.append(f"{path}: minimum")
    return said


def chart(yaml):
    home = HOME / "helm"
    values = yaml.safe_load((home / "values.yaml").read_text())
    schema = json.loads((home / "values.schema.json").read_text())
    check("Helm: the values fit the schema", not matches(schema, values), matches(schema, values))
    check("Helm: wrong values do not", matches(schema, {**values, "replicas": 0}) and
          matches(schema, {**values, "replica": 1}))
    version = subprocess.run([ROOT / "tools" / "version.sh"], capture_output=True, text=True,
                             cwd=ROOT).stdout.strip()
    about = yaml.safe_load((home / "Chart.yaml").read_text())
    check("Helm: the version", about["appVersion"] == version, (about, version))
    values["options"] = ["--weights_dtype", "int8"]
    values["autoscale"]["enabled"] = True
    server, service = yaml.safe_load_all(rendered(
        (home / "templates" / "server.yaml").read_text(), values))
    box = server["spec"]["template"]["spec"]["containers"][0]
    check("Helm: flags", not unknown(box["args"]) and box["args"][-2:] == values["options"] and
          all(isinstance(a, str) for a in box["args"]), box["args"])
    check("Helm: volumes", {m["name"] for m in box["volumeMounts"]} ==
          {v["name"] for v in server["spec"]["template"]["spec"]["volumes"]})
    check("Helm: the service finds the pods", service["spec"]["selector"] ==
          server["spec"]["template"]["metadata"]["labels"])
    text = rendered((home / "templates" / "autoscale.yaml").read_text(), values)
    check("Helm: KEDA scales the Deployment", yaml.safe_load(text)["spec"]["scaleTargetRef"]["name"]
          == server["metadata"]["name"], text)


def sbatch():
    path = HOME / "slurm" / "generate.sbatch"
    r = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
    check("Slurm: a script of bash", r.returncode == 0, r.stderr)
    line = path.read_text().replace("\\\n", " ").splitlines()[-1]
    words = shlex.split(line)
    check("Slurm: flags", not unknown(words[words.index("xdit"):]), words)


def unit():
    u = configparser.ConfigParser(strict=False, interpolation=None)
    u.optionxform = str
    u.read(HOME / "xdit-server.service")
    words = shlex.split(u["Service"]["ExecStart"])
    check("systemd: flags", words[0] == "/usr/bin/xdit" and not unknown(words[1:]), words)
    given = (HOME / "xdit-server.default").read_text()
    flags = shlex.split(re.search(r'^XDIT_SERVE="(.*)"$', given, re.M)[1])
    check("systemd: flags of the environment", not unknown(["serve", *flags]), flags)
    verify = shutil.which("systemd-analyze")
    if not verify:
        skip("systemd-analyze verify", "there is no systemd-analyze")
        return
    with tempfile.TemporaryDirectory() as folder:       # as if this program were installed
        copy = pathlib.Path(folder) / "xdit-server.service"
        copy.write_text((HOME / copy.name).read_text().replace("/usr/bin/xdit", str(XDIT)))
        r = subprocess.run([verify, "--man=no", "verify", copy], capture_output=True, text=True)
    said = [line for line in r.stderr.splitlines() if "xdit-server.service" in line]
    check("systemd-analyze verify", r.returncode == 0 and not said, r.stderr)


def needed():
    """Packages of the libraries that the binaries link, as the loader finds them here."""
    owners = set()
    for b in BINARIES:
        out = subprocess.run(["objdump", "-p", b], capture_output=True, text=True).stdout
        names = set(re.findall(r"NEEDED\s+(\S+)", out))
        out = subprocess.run(["ldd", b], capture_output=True, text=True).stdout
        owners |= set().union(*(owners_of(path) for name, path in
                                re.findall(r"(\S+) => (/\S+)", out) if name in names))
    return owners - {"libc6", "libstdc++6", "libgcc-s1"}


def owners_of(path, query="dpkg-query"):
    """Packages of the file itself, whatever others have a file of its name."""
    r = subprocess.run([query, "-S", f"*/{os.path.basename(path)}"], capture_output=True,
                       text=True)
    rows = [line.split(": ", 1) for line in r.stdout.splitlines() if ": /" in line]
    return {name.split(":")[0] for owner, file in rows
            if os.path.exists(file) and os.path.samefile(file, path)
            for name in owner.split(", ")}


def cross_compiled():
    """Libraries of other architectures beside those that are linked."""
    with tempfile.TemporaryDirectory() as folder:
        name = "libgiven.so.1"
        here, other = (pathlib.Path(folder) / d / name for d in ("here", "other"))
        for file in here, other:
            file.parent.mkdir()
            file.write_text("")
        query = pathlib.Path(folder) / "query"
        query.write_text(f"#!/bin/sh\necho 'given1:amd64: {here}\ngiven1-arm64-cross: {other}'\n")
        query.chmod(0o755)
        found = owners_of(here, query)
    check("packages of other architectures do not count", found == {"given1"}, found)


def container():
    text = (HOME / "container" / "Containerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.M)[1:]
    check("container: two stages", len(stages) == 2 and " AS build" in stages[0])
    packages = [set(re.sub(r".*?--no-install-recommends|&&.*", "", s.replace("\\\n", " ")
                           .split("RUN apt-get")[1].split("\n")[0].replace(
                               "update && apt-get install -y", "")).split()) for s in stages]
    check("container: no build tools in the result",
          not any(p.endswith("-dev") or p in ("gcc", "g++", "meson") for p in packages[1]),
          packages[1])
    wanted = set(re.search(r"^PACKAGES = (.*?)\n\n", (ROOT / "Makefile").read_text() + "\n\n",
                           re.M | re.S)[1].split("\nTEST")[0].replace("\\", "").split())
    check("container: builds with packages of the Makefile",
          packages[0] - {"libc6-dev"} <= wanted | {"libcurl4-openssl-dev"}, packages[0] - wanted)
    if not shutil.which("dpkg-query") or not shutil.which("objdump"):
        skip("container: packages of all libraries", "this is no Debian")
        return
    base = re.match(r"debian:(\w+)", stages[1])[1]
    release = pathlib.Path("/etc/os-release")
    here = re.search(r"^VERSION_CODENAME=(.*)$", release.read_text() if release.exists() else "",
                     re.M)
    if not here or here[1] != base:
        skip("container: packages of all libraries", f"this is not Debian's {base}")
        return
    found = needed()
    check("container: packages of all libraries", found and found <= packages[1],
          found - packages[1])


def debian():
    control = (ROOT / "debian" / "control").read_text()
    names = re.findall(r"^Package: (\S+)", control, re.M)
    check("debian: packages", names == ["libxdit0", "libxdit-dev", "xdit", "xdit-server",
                                        "python3-xdit"], names)
    files = {p.name.removesuffix(".install") for p in (ROOT / "debian").glob("*.install")}
    check("debian: each has its files", files == set(names), files)
    installed(names)
    version = subprocess.run([ROOT / "tools" / "version.sh"], capture_output=True, text=True,
                             cwd=ROOT).stdout.strip()
    log = (ROOT / "debian" / "changelog").read_text()
    check("debian: the version", log.startswith(f"xdit ({version})"), log[:40])


def installed(packages):
    """What meson installs is in one package each."""
    rows = [(p, line) for p in packages
            for line in (ROOT / "debian" / f"{p}.install").read_text().split()]
    prefix = next(o["value"] for o in json.loads(
        (BUILD / "meson-info" / "intro-buildoptions.json").read_text()) if o["name"] == "prefix")
    files = json.loads((BUILD / "meson-info" / "intro-installed.json").read_text()).values()
    lost = {}
    for f in files:
        name = str(pathlib.Path("usr") / pathlib.Path(f).relative_to(prefix))
        owners = {p for p, line in rows
                  if fnmatch.fnmatchcase(name, line) or fnmatch.fnmatchcase(name, line + "/*")}
        if len(owners) != 1:
            lost[name] = owners
    check("debian: every installed file is in one package", files and not lost, lost)


def archive():
    """What `make dist` makes: files of HEAD, and its name, for builds without git."""
    what = "make dist: an archive that names its commit"
    if not shutil.which("git") or not (ROOT / ".git").exists():
        skip(what, "this is no repository")
        return
    with tempfile.TemporaryDirectory() as folder:
        T = pathlib.Path(folder)
        tree = T / "tree"
        subprocess.run(["git", "clone", "-q", ROOT, tree], check=True)
        head = subprocess.run(["git", "-C", tree, "rev-parse", "--short=12", "HEAD"],
                              capture_output=True, text=True, check=True).stdout
        out = T / "archive"
        out.mkdir()
        env = {**os.environ, "MESON_DIST_ROOT": str(out), "MESON_SOURCE_ROOT": str(tree)}
        subprocess.run([tree / "tools" / "commit.sh"], env=env, check=True)
        shutil.copytree(tree / "tools", out / "tools")
        said = subprocess.run([out / "tools" / "commit.sh"], capture_output=True, text=True, cwd=T)
        check(what, said.stdout == head and len(head) == 13, (said, head))
        (out / "COMMIT").unlink()
        said = subprocess.run([out / "tools" / "commit.sh"], capture_output=True, text=True, cwd=T)
        check("another folder names none", said.returncode != 0 and not said.stdout, said)


def main():
    try:
        import yaml
        cluster_files(yaml)
        autoscaling(yaml)
        chart(yaml)
    except ImportError:
        skip("Kubernetes", "there is no Python package yaml")
    sbatch()
    unit()
    cross_compiled()
    container()
    debian()
    archive()
    sys.exit(done())


main()
