"""The health check, against the real server."""

from __future__ import annotations

import pytest
import tensorflow as tf

from seed_rl.cluster import health
from seed_rl.common.errors import UserError
from seed_rl.grpc import diagnosis
from seed_rl.grpc.channel_options import ServerOptions
from tests.helpers import run_python
from tests.helpers.op_helpers import INT, serving
from tests.helpers.secrets import make_secrets
from tests.helpers.waiting import PATIENCE_S


@tf.function(input_signature=[INT])
def echo(x):
    return x


def learner(port: int, **more: object) -> dict[str, str]:
    return {"SEED_RL_ROLE": "learner", "SEED_RL_ADDRESS": f"learner:{port}", **more}


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_serving_learner_is_healthy(tmp_path, free_port, encrypted):
    """Without its token; with TLS, the certificate must be for the name that actors use."""
    secrets = make_secrets(tmp_path / "secrets", "learner")
    folder = secrets.folder
    tls = {"tls_certificate": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    options = ServerOptions(token=secrets.token, **(tls if encrypted else {}))
    more = {"SEED_RL_SECRETS": str(folder)} if encrypted else {}
    with serving(f"0.0.0.0:{free_port}", echo, options=options):
        assert health.main(learner(free_port, **more)) == 0
        published = tmp_path / "address"
        published.write_text(f"learner:{free_port}\n")
        found = {"SEED_RL_ROLE": "learner", "SEED_RL_ADDRESS_FILE": str(published), **more}
        assert health.main(found) == 0
        if encrypted:
            # The learner's folder need not have the authority's certificate.
            (folder / "ca.pem").unlink()
            assert health.main(learner(free_port, **more)) == 0


def test_one_of_several_learners_is_asked_at_its_own_address(free_port, tmp_path):
    several = {"SEED_RL_ADDRESS": f"a:1,b:{free_port}", "SEED_RL_INDEX": "1"}
    (tmp_path / "address-1").write_text(f"b:{free_port} now\n")
    met = {"SEED_RL_ADDRESS_FILE": str(tmp_path / "address"), "SEED_RL_START": "now"}
    with serving(f"0.0.0.0:{free_port}", echo, options=ServerOptions(insecure=True)):
        assert health.main({"SEED_RL_ROLE": "learner", **several}) == 0
        assert health.main({"SEED_RL_ROLE": "learner", "SEED_RL_INDEX": "1", **met}) == 0


def test_one_that_does_not_serve_is_not(free_port, monkeypatch, capsys):
    monkeypatch.setattr(health, "_TIMEOUT_S", 0.3)
    assert health.main(learner(free_port)) == 1
    assert f"does not answer at 127.0.0.1:{free_port}" in capsys.readouterr().err


def test_a_certificate_that_nobody_accepts(tmp_path, free_port, monkeypatch, capsys):
    """Guards against "Deadline Exceeded", gRPC's only message."""
    monkeypatch.setattr(health, "_TIMEOUT_S", 0.5)
    monkeypatch.setattr(diagnosis, "_LONGEST_S", PATIENCE_S)  # A busy machine answers late.
    folder = make_secrets(tmp_path / "secrets", "another").folder
    tls = {"tls_certificate": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    with serving(f"0.0.0.0:{free_port}", echo, options=ServerOptions(**tls)):
        assert health.main(learner(free_port, SEED_RL_SECRETS=str(folder))) == 1
    assert "certificate is not for learner" in capsys.readouterr().err


def test_other_roles_have_no_port_to_ask():
    assert health.main({"SEED_RL_ROLE": "tensorboard"}) == 0
    assert health.main({"SEED_RL_ROLE": "actor", "SEED_RL_INDEX": "0"}) == 0


def test_settings_that_make_no_sense(capsys):
    assert health.main({"SEED_RL_ROLE": "learner"}) == 1
    assert "SEED_RL_ADDRESS" in capsys.readouterr().err
    with pytest.raises(UserError, match="not the address of a learner"):
        health.check_own({"SEED_RL_ROLE": "learner", "SEED_RL_ADDRESS": "learner"})


def test_needs_no_tensorflow():
    """Engines ask every half minute."""
    code = "import seed_rl.cluster.health, sys; sys.exit('tensorflow' in sys.modules)"
    run_python("-c", code, code=0)
