"""The manifests of k8s/submit.sh: known to the schemas of their kinds, and as reviewed in golden/.

The case `plain` is there as a whole, of the others what differs from the case in `BASES`. What
`gpu`, `insecure` and `spot` change has tests of its own.

After a change, write the golden files anew and review the difference:

    python -m tests.k8s.test_manifests
"""

from __future__ import annotations

import copy
import difflib
import pathlib

import pytest
import yaml

from seed_rl.common.errors import LostLearnerError
from tests.k8s.manifests import CASES, documents, pods, problems, render, script

GOLDEN = pathlib.Path(__file__).with_name("golden")
REVIEWED = sorted(CASES.keys() - {"gpu", "insecure", "spot"})
BASES = {"jobset": "plain", "learners": "insecure"}
FORM = {"width": 100, "default_flow_style": None}  # What has no parts stands on one line.


def rendered(case):
    return documents(render(case))


def the(kind, case, name=None):
    (found,) = [
        d for d in rendered(case) if d["kind"] == kind and name in (None, d["metadata"]["name"])
    ]
    return copy.deepcopy(found)


def to_review(case):
    """(file in golden/, its text). A set's jobs are documents of their own, as without a set."""
    text = yaml.safe_dump_all(_apart(case), **FORM)
    if case == "plain":
        return "plain.yaml", text
    base = yaml.safe_dump_all(_apart(BASES[case]), **FORM)
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), n=1, lineterm="")
    return f"{case}.diff", "\n".join([*lines][2:]) + "\n"


def _apart(case):
    """Its documents, those of a JobSet's jobs where `plain` has them, sorted by kind and name."""
    found = [copy.deepcopy(document) for document in rendered(case)]
    for document in [each for each in found if each["kind"] == "JobSet"]:
        for job in document["spec"]["replicatedJobs"]:
            spec = job.pop("template")
            found.append({"kind": "Job", "metadata": {"name": job["name"]}, **spec})
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


@pytest.mark.parametrize("case", CASES)
def test_case_is_valid(case):
    assert [p for document in rendered(case) for p in problems(document)] == []


@pytest.mark.parametrize("case", REVIEWED)
def test_case_is_as_reviewed(case):
    file, text = to_review(case)
    assert text == (GOLDEN / file).read_text()


def test_a_typo_is_found():
    """Guards the validators: JobSet's models drop unknown fields in silence."""
    job_set, job = the("JobSet", "jobset"), the("Job", "plain", "learner")
    job_set["spec"]["failurePolicy"]["replicsa"] = 1
    assert problems(job_set) == ["JobSet: unknown field .spec.failurePolicy.replicsa"]
    job["spec"]["replicsa"] = 1
    assert problems(job)


@pytest.mark.parametrize("case", CASES)
def test_names_within_a_run_agree(case):
    """What no schema checks: referenced names exist, selectors match the pods."""
    all_of = rendered(case)
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


def pod_labels(case):
    for document in rendered(case):
        if document["kind"] == "JobSet":
            for job in document["spec"]["replicatedJobs"]:
                yield job["template"]["spec"]["template"]["metadata"]["labels"]
        elif document["kind"] in ("Job", "Deployment"):
            yield document["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_one_kind_of_pod(case):
    for document in rendered(case):
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            selector = spec["selector"]
        elif document["kind"] in ("PodDisruptionBudget", "Deployment"):
            selector = spec["selector"]["matchLabels"]
        else:
            continue
        found = [labels for labels in pod_labels(case) if selector.items() <= labels.items()]
        component = document["metadata"]["labels"]["app.kubernetes.io/component"]
        assert [labels["app.kubernetes.io/component"] for labels in found] == [component]


@pytest.mark.parametrize("case", CASES)
def test_pods_have_no_more_rights_than_they_need(case):
    for document in rendered(case):
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


def test_what_gpus_and_tensorboard_need():
    """An image with CUDA, actors elsewhere, and a volume that several nodes can mount."""
    learner, actors = pods(the("JobSet", "gpu")).values()
    assert learner["containers"][0]["image"].endswith("-gpu")
    [preferred] = actors["affinity"]["nodeAffinity"].values()
    labels = preferred[0]["preference"]["matchExpressions"]
    assert {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"} in labels
    assert the("PersistentVolumeClaim", "gpu")["spec"]["accessModes"] == ["ReadWriteMany"]


def test_an_insecure_run_has_neither_proxy_nor_secrets():
    """Its learner answers the probes itself."""
    learner, actors = pods(the("JobSet", "insecure")).values()
    for pod in (learner, actors):
        assert "initContainers" not in pod and "secret" not in str(pod).lower()
    [container] = learner["containers"]
    probes = [container[f"{kind}Probe"] for kind in ("liveness", "readiness", "startup")]
    assert [(p["grpc"], "exec" in p) for p in probes] == [({"port": 8686}, False)] * 3
    assert "proxy" not in str(container["env"]).lower()


def test_only_actors_are_on_spot_nodes():
    """By the labels of four clouds' nodes, and past the taints of two."""
    learner, actors = pods(the("JobSet", "spot")).values()
    [required] = actors["affinity"]["nodeAffinity"].values()
    assert len(required["nodeSelectorTerms"]) == 4
    tolerated = {each["key"] for each in actors["tolerations"]}
    assert {"cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority"} <= tolerated
    assert "spot" not in str(learner).lower()


@pytest.mark.parametrize("engine", ["jobset", "plain"])
def test_the_number_of_actors_is_written_once(engine):
    """ACTORS, which submit.sh writes into run.env alone, is the number of pods."""
    images = ("--learner_image=learner", "--actor_image=actor")
    options = (*images, f"--engine={engine}", "--dry_run")
    done = script("submit.sh", *options, "gym", "vtrace", "300")
    assert done.returncode == 0, done.stderr
    for document in documents(done.stdout):
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


@pytest.mark.parametrize(
    ("image", "policy"),
    [("host/a/image:1", "Always"), ("image", None), ("host/image@sha256:1", None)],
)
def test_only_images_that_a_registry_may_replace_are_pulled_again(image, policy):
    """Guards the code of an image built again under its tag, and clusters without a registry."""
    images = [f"--{name}_image={image}" for name in ("learner", "actor", "tensorboard")]
    done = script("submit.sh", *images, "--with=tensorboard", "--dry_run", "gym", "vtrace", "2")
    containers = [
        container
        for document in documents(done.stdout)
        for pod in pods(document).values()
        for container in pod["containers"] + pod.get("initContainers", [])
    ]
    assert [each.get("imagePullPolicy") for each in containers] == [policy] * 4


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
    assert actors["backoffLimitPerIndex"] >= 10_000  # One given up would fail a finished run.
    # Without a set, nothing ends the actors when the learner is done: they must give up.
    plain = the("Job", "plain", "actors")["spec"]
    assert actions(plain) == expected and plain["backoffLimitPerIndex"] == 20
    for spec in (learner, actors):
        (container,) = spec["template"]["spec"]["containers"]
        assert "--stopped_exit_code=75" in container["args"]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in REVIEWED:
        file, text = to_review(each)
        (GOLDEN / file).write_text(text)
