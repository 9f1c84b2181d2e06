"""The manifests of k8s/submit.sh: valid by their schemas, and what no schema checks."""

from __future__ import annotations

import pytest

from seed_rl.common.errors import LostLearnerError
from tests.k8s.manifests import CASES, documents, pods, problems, render, script

NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"


def rendered(case):
    return documents(render(case))


def the(kind, case, name=None):
    (found,) = [
        d for d in rendered(case) if d["kind"] == kind and name in (None, d["metadata"]["name"])
    ]
    return found


def jobs(case):
    """{name: specification} of its Jobs, in a set or not."""
    found = {}
    for document in rendered(case):
        if document["kind"] == "JobSet":
            of_set = document["spec"]["replicatedJobs"]
            found |= {job["name"]: job["template"]["spec"] for job in of_set}
        elif document["kind"] == "Job":
            found[document["metadata"]["name"]] = document["spec"]
    return found


@pytest.mark.parametrize("case", CASES)
def test_case_is_valid(case):
    assert [p for document in rendered(case) for p in problems(document)] == []


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
                for variable in container["env"]:
                    if variable["name"] == "SEED_RL_ADDRESS":
                        host = variable["value"].partition(":")[0]
                        service = host.rpartition(".")[2]  # Of several, pod.learners.
                        assert ("Service", service) in names
            mounted = {mount["name"] for each in containers for mount in each["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["volumes"]}


def pod_labels(case):
    deployments = [d["spec"] for d in rendered(case) if d["kind"] == "Deployment"]
    for spec in (*jobs(case).values(), *deployments):
        yield spec["template"]["metadata"]["labels"]


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
        component = document["metadata"]["labels"][COMPONENT]
        assert [labels[COMPONENT] for labels in found] == [component]


@pytest.mark.parametrize("case", CASES)
def test_pods_have_no_more_rights_than_they_need(case):
    for document in rendered(case):
        for pod in pods(document).values():
            assert pod["automountServiceAccountToken"] is False
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
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


@pytest.mark.parametrize("case", CASES)
def test_only_actors_and_learners_reach_learners(case):
    """And nobody reaches other pods. Learners do at the port where they exchange gradients."""

    def admits(component, port):
        peer = {"podSelector": {"matchLabels": {NAME: "seed-rl", COMPONENT: component}}}
        return {"from": [peer], "ports": [{"port": port}]}

    kinds = {labels[COMPONENT]: labels for labels in pod_labels(case)}
    admitted = {}  # Without kinds of pods that no policy selects: they are open to all.
    for policy in rendered(case):
        if policy["kind"] == "NetworkPolicy":
            spec = policy["spec"]
            assert spec["policyTypes"] == ["Ingress"]
            for kind, labels in kinds.items():
                if spec["podSelector"]["matchLabels"].items() <= labels.items():
                    admitted.setdefault(kind, []).extend(spec.get("ingress", []))
    exchange = [admits("learner", 8786)] if case == "learners" else []
    expected = {"learner": [admits("actor", 8686), *exchange]}
    assert admitted == {kind: expected.get(kind, []) for kind in kinds}


@pytest.mark.parametrize("case", CASES)
def test_pods_can_start(case):
    """Guards against Jobs that hang, and against what passes the schemas but no cluster."""
    for spec in jobs(case).values():
        pod = spec["template"]["spec"]
        assert spec["completionMode"] == "Indexed"
        assert pod["restartPolicy"] == "Never"  # podFailurePolicy requires it.
        assert pod["securityContext"]["fsGroup"] == 1000  # Reads Secrets, writes to the volume.
        for sidecar in pod.get("initContainers", []):
            # Otherwise, the learner waits until it ends.
            assert sidecar["restartPolicy"] == "Always"


@pytest.mark.parametrize("case", CASES)
def test_the_learner_stays_where_it_is_and_has_time_to_save(case):
    """Guards it from autoscalers that would move it, and its last checkpoint from a kill."""
    template = jobs(case)["learner"]["template"]
    assert template["metadata"]["annotations"] == {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    assert template["spec"]["terminationGracePeriodSeconds"] == 300


def test_a_busy_learner_is_not_killed():
    """By its probes: 10 minutes; at the start 15 minutes, and 20 s for each of its 8 GiB."""
    (container,) = jobs("jobset")["learner"]["template"]["spec"]["containers"]
    live, start = container["livenessProbe"], container["startupProbe"]
    assert live["failureThreshold"] * live["periodSeconds"] == 10 * 60
    assert start["failureThreshold"] * start["periodSeconds"] == 15 * 60 + 8 * 20


@pytest.mark.parametrize(("case", "learners"), [("plain", 1), ("jobset", 1), ("learners", 2)])
def test_a_drain_waits_for_every_learner(case, learners):
    """Guards runs from upgrades of nodes: no learner may be evicted, while actors may."""
    spec = jobs(case)["learner"]
    assert (spec["completions"], spec["parallelism"]) == (learners, learners)
    assert the("PodDisruptionBudget", case)["spec"]["minAvailable"] == learners


@pytest.mark.parametrize(
    ("case", "mode"), [("jobset", "ReadWriteOnce"), ("learners", "ReadWriteMany")]
)
def test_a_volume_is_for_as_many_nodes_as_there_may_be_learners(case, mode):
    """Guards learners from waiting for a volume; storage for several nodes is rare."""
    assert the("PersistentVolumeClaim", case)["spec"]["accessModes"] == [mode]


def test_several_learners_have_addresses_before_they_serve():
    """Guards their meeting, under names of this Service, which JobSet would replace by its own."""
    service = the("Service", "learners", "learners")["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert the("JobSet", "learners")["spec"]["network"] == {"enableDNSHostnames": False}


def test_a_set_begins_and_ends_with_its_learner():
    """Guards what a run costs: actors wait for the learner, and nothing is tried forever."""
    spec = the("JobSet", "jobset")["spec"]
    learner, actors = spec["replicatedJobs"]
    assert (learner["replicas"], actors["replicas"]) == (1, 1)
    assert actors["dependsOn"] == [{"name": "learner", "status": "Ready"}]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["learner"]}
    assert spec["failurePolicy"]["maxRestarts"] == 2
    user_error, no_actors = spec["failurePolicy"]["rules"]
    fails = {"action": "FailJobSet"}
    assert user_error == fails | {"name": "userError", "onJobFailureReasons": ["PodFailurePolicy"]}
    assert no_actors == fails | {"name": "noActorsLeft", "targetReplicatedJobs": ["actors"]}


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


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_actors_is_written_once(case):
    """ACTORS, which submit.sh writes into run.env alone, is the number of pods."""
    spec = jobs(case)["actors"]
    assert (spec["completions"], spec["parallelism"]) == (8, 8)


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

    learner, actors = map(jobs("jobset").get, ("learner", "actors"))
    expected = {2: "FailJob", "disruption": "Ignore"}
    assert actions(learner) == expected
    assert actions(actors) == {**expected, 4: "Ignore"}
    several = jobs("learners")["learner"]
    assert actions(several) == {**expected, LostLearnerError.exit_code: "Ignore"}
    assert learner["backoffLimit"] == 5
    assert actors["backoffLimitPerIndex"] >= 10_000  # One given up would fail a finished run.
    # Without a set, nothing ends the actors when the learner is done: they must give up.
    plain = jobs("plain")["actors"]
    assert actions(plain) == expected and plain["backoffLimitPerIndex"] == 20
    for spec in (learner, actors):
        (container,) = spec["template"]["spec"]["containers"]
        assert "--stopped_exit_code=75" in container["args"]
