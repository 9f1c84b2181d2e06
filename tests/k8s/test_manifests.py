"""The manifests in k8s/: known to the schemas of their kinds, and as reviewed in golden/.

The overlay `plain` is there as a whole, of `jobset` what differs from it, of others what differs
from `jobset`.

After a change, write the golden files anew and review the difference:

    python -m tests.k8s.test_manifests
"""

from __future__ import annotations

import copy
import difflib
import functools
import pathlib
import shutil

import pytest
import yaml

from seed_rl.common.errors import LostLearnerError
from tests.k8s.manifests import K8S, OVERLAYS, documents, pods, problems, render

GOLDEN = pathlib.Path(__file__).with_name("golden")
FORM = {"width": 100, "default_flow_style": None}  # What has no parts stands on one line.


@functools.cache
def _rendered(overlay):
    return render(K8S / "overlays" / overlay)


def rendered(overlay):
    return documents(_rendered(overlay))


def the(kind, overlay, name=None):
    (found,) = [
        d for d in rendered(overlay) if d["kind"] == kind and name in (None, d["metadata"]["name"])
    ]
    return copy.deepcopy(found)


def to_review(overlay):
    """(file in golden/, its text). A set's jobs are documents of their own, as without a set."""
    text = yaml.safe_dump_all(_apart(overlay), **FORM)
    if overlay == "plain":
        return "plain.yaml", text
    base = yaml.safe_dump_all(_apart("plain" if overlay == "jobset" else "jobset"), **FORM)
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), n=1, lineterm="")
    return f"{overlay}.diff", "\n".join([*lines][2:]) + "\n"


def _apart(overlay):
    """Its documents, those of a JobSet's jobs where `plain` has them, sorted by kind and name."""
    found = [copy.deepcopy(document) for document in rendered(overlay)]
    for document in [each for each in found if each["kind"] == "JobSet"]:
        for job in document["spec"]["replicatedJobs"]:
            spec = job.pop("template")
            found.append({"kind": "Job", "metadata": {"name": job["name"]}, **spec})
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_is_valid_and_as_reviewed(overlay):
    file, text = to_review(overlay)
    assert text == (GOLDEN / file).read_text()
    assert [p for document in rendered(overlay) for p in problems(document)] == []


def places(document):
    """Every mapping of a document whose keys are fields, as paths."""
    free = {"labels", "annotations", "matchLabels", "selector", "data", "nodeSelector"}
    free |= {"limits", "requests"}

    def walk(value, path):
        if isinstance(value, dict):
            yield path
            for name, inner in value.items():
                if name not in free:
                    yield from walk(inner, (*path, name))
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                yield from walk(inner, (*path, i))

    return list(walk(document, ()))


@pytest.mark.parametrize(
    ("kind", "overlay", "name"), [("JobSet", "gpu", None), ("Job", "plain", "learner")]
)
def test_a_typo_is_found_in_every_mapping(kind, overlay, name):
    """Guards the validators themselves: some silently accept unknown fields."""
    good = the(kind, overlay, name)
    assert problems(good) == []
    for path in places(good):
        bad = copy.deepcopy(good)
        place = bad
        for step in path:
            place = place[step]
        place["replicsa"] = 1
        assert problems(bad), f"{kind}: a typo at {path} is not found"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "failurePolicy", "maxRestarts"), "two"),
        (("spec", "failurePolicy", "rules", 0, "action"), "FailJobset"),
        (("spec", "replicatedJobs", 1, "template", "spec", "completions"), "8"),
    ],
)
def test_a_wrong_value_in_a_jobset_is_found(path, value):
    bad = place = the("JobSet", "jobset")
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert problems(bad)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_names_within_a_run_agree(overlay):
    """What no schema checks: referenced names exist, selectors match the pods."""
    all_of = rendered(overlay)
    names = {(d["kind"], d["metadata"]["name"]) for d in all_of}
    assert {d["metadata"]["namespace"] for d in all_of} == {"seed-rl"}
    for document in all_of:
        for pod in pods(document).values():
            containers = pod["containers"] + pod.get("initContainers", [])
            for volume in pod["volumes"]:
                if "configMap" in volume:
                    assert ("ConfigMap", volume["configMap"]["name"]) in names
                if "persistentVolumeClaim" in volume:
                    claim = volume["persistentVolumeClaim"]["claimName"]
                    assert ("PersistentVolumeClaim", claim) in names
            for container in containers:
                for source in container["envFrom"]:
                    assert ("ConfigMap", source["configMapRef"]["name"]) in names
                assert container["image"].startswith("registry.example.com/seed-rl-")
            mounted = {mount["name"] for each in containers for mount in each["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["volumes"]}


def pod_labels(overlay):
    for document in rendered(overlay):
        if document["kind"] == "JobSet":
            for job in document["spec"]["replicatedJobs"]:
                yield job["template"]["spec"]["template"]["metadata"]["labels"]
        elif document["kind"] in ("Job", "Deployment"):
            yield document["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_find_one_kind_of_pod(overlay):
    for document in rendered(overlay):
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            selector = spec["selector"]
        elif document["kind"] in ("PodDisruptionBudget", "Deployment"):
            selector = spec["selector"]["matchLabels"]
        else:
            continue
        found = [labels for labels in pod_labels(overlay) if selector.items() <= labels.items()]
        component = document["metadata"]["labels"]["app.kubernetes.io/component"]
        assert [labels["app.kubernetes.io/component"] for labels in found] == [component]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_have_no_more_rights_than_they_need(overlay):
    for document in rendered(overlay):
        for pod in pods(document).values():
            assert pod["automountServiceAccountToken"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["runAsUser"] > 0
            for container in pod["containers"] + pod.get("initContainers", []):
                rights = container["securityContext"]
                assert rights["readOnlyRootFilesystem"] is True
                assert rights["allowPrivilegeEscalation"] is False
                assert rights["capabilities"] == {"drop": ["ALL"]}
            for volume in pod["volumes"]:
                if "secret" in volume:
                    assert volume["secret"]["defaultMode"] == 0o400


def test_only_the_learner_has_the_key():
    secrets = {
        name: [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
        for document in rendered("gpu")
        for name, pod in pods(document).items()
    }
    assert secrets == {
        "learner": ["learner-secrets"],
        "actors": ["actor-secrets"],
        "tensorboard": [],
    }


@pytest.mark.parametrize("overlay", ["jobset", "plain"])
def test_the_number_of_actors_is_written_once(overlay, tmp_path):
    """Another ACTORS in run.env, and nothing else, makes another number of pods."""
    shutil.copytree(K8S, tmp_path / "k8s")
    run = tmp_path / "k8s/overlays" / overlay / "run.env"
    run.write_text(run.read_text().replace("ACTORS=8", "ACTORS=300"))
    for document in documents(render(run.parent)):
        if document["kind"] == "JobSet":
            (spec,) = [
                job["template"]["spec"]
                for job in document["spec"]["replicatedJobs"]
                if job["name"] == "actors"
            ]
        elif (document["kind"], document["metadata"]["name"]) == ("Job", "actors"):
            spec = document["spec"]
        else:
            continue
        assert (spec["completions"], spec["parallelism"]) == (300, 300)
        return
    raise AssertionError("no actors")


def test_exit_codes_lead_to_what_the_manual_says():
    """2 ends the run, an eviction does not count, nor, in a set, a learner out of reach, nor one of
    several learners that has lost another (which counts). All else counts, so that nothing is tried
    forever: also 75, as after a failed probe.
    """

    def actions(spec):
        found = {}
        for rule in spec["podFailurePolicy"]["rules"]:
            for code in rule.get("onExitCodes", {}).get("values", ["disruption"]):
                found.setdefault(code, rule["action"])
        return found

    learner, actors = (
        job["template"]["spec"] for job in the("JobSet", "jobset")["spec"]["replicatedJobs"]
    )
    expected = {2: "FailJob", "disruption": "Ignore"}
    assert actions(learner) == expected
    assert actions(actors) == {**expected, 4: "Ignore"}
    several, _ = (
        job["template"]["spec"] for job in the("JobSet", "learners")["spec"]["replicatedJobs"]
    )
    assert actions(several) == {**expected, LostLearnerError.exit_code: "Ignore"}
    # Without a set, nothing ends the actors when the learner is done: they must give up.
    assert actions(the("Job", "plain", "actors")["spec"]) == expected
    for spec in (learner, actors):
        (container,) = spec["template"]["spec"]["containers"]
        assert "--stopped_exit_code=75" in container["args"]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in OVERLAYS:
        file, text = to_review(each)
        (GOLDEN / file).write_text(text)
