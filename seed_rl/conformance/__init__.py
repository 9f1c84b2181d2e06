"""Checks a client of any language: `seed-rl conformance -- COMMAND ...`.

COMMAND must be an actor that plays CartPole-v1 and takes an actor's flags, which are appended to it
(docs/wire_actor.md). The learner is a real server with a real inference store; a script takes the
place of the network. It knows CartPole's equations, so it notices steps that are lost, doubled,
swapped between environments or not caused by its actions.
"""

from seed_rl.conformance.checks import ENDS as ENDS
from seed_rl.conformance.checks import RUN as RUN
from seed_rl.conformance.checks import Conformance as Conformance
from seed_rl.conformance.learner import ENV_IDS as ENV_IDS
from seed_rl.conformance.learner import Learner as Learner
from seed_rl.conformance.learner import Part as Part
from seed_rl.conformance.rules import CartPole as CartPole
from seed_rl.conformance.rules import Environment as Environment
from seed_rl.conformance.rules import Row as Row
from seed_rl.conformance.rules import Violation as Violation
