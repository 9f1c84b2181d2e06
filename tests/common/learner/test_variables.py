"""Finding an agent's variables: Keras layers inside a tf.Module are the case that goes wrong."""

import collections

import tensorflow as tf

from seed_rl.common.learner import variables
from seed_rl.common.networks import layers

Pair = collections.namedtuple("Pair", "first second")


class Agent(tf.Module):
    def __init__(self):
        super().__init__()
        self.plain = tf.Variable(1.0)
        self.counter = tf.Variable(0, trainable=False)
        self.layer = tf.keras.layers.Dense(2)
        self.again = self.layer
        self.listed = [tf.keras.layers.Dense(3)]
        self.named = {"b": tf.Variable(2.0), "a": Pair(tf.keras.layers.LSTMCell(2), 1)}
        self.inner = tf.Module()
        self.inner.norm = tf.keras.layers.BatchNormalization()
        self.stack = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dropout(0.5)])
        inputs = tf.ones([1, 5])
        for layer in (self.layer, *self.listed, self.inner.norm, self.stack):
            layer(inputs)
        self.named["a"].first(inputs, [tf.zeros([1, 2])] * 2)


def test_every_variable_is_found_once():
    agent = Agent()
    found = variables.variables(agent)
    assert all(isinstance(variable, tf.Variable) for variable in found)
    assert len({id(variable) for variable in found}) == len(found)
    # Shapes: plain, counter, "b", three Dense layers, an LSTM, batch normalization's four.
    shapes = sorted(tuple(variable.shape) for variable in found)
    dense = [(5, 2), (2,), (5, 3), (3,), (5, 4), (4,)]
    lstm = [(5, 8), (2, 8), (8,)]
    assert shapes == sorted([(), (), (), *dense, *lstm, *[(5,)] * 4])


def test_modules_and_variables_of_keras_layers_are_found():
    """Guards weights that Keras does not count: they were neither trained nor copied. Seeds and
    metrics are not weights."""

    class Inner(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.module = layers.Dense(5)
            self.dropout, self.metric = tf.keras.layers.Dropout(0.5), tf.keras.metrics.Mean()

        def call(self, inputs):
            return self.module(self.dropout(inputs, training=True))

    class Network(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.dense = Inner(), tf.keras.layers.Dense(2)
            self._listed = [layers.Dense(3)]
            self.factor = tf.Variable(1.0)

        def call(self, inputs):
            return self._listed[0](self.inner(self.dense(inputs))) * self.factor

    network = Network()
    network(tf.ones([1, 2]))
    shapes = sorted(tuple(v.shape) for v in variables.trainable_variables(network))
    assert shapes == sorted([(), (2, 2), (2,), (2, 5), (5,), (5, 3), (3,)])
    assert len(variables.variables(network)) == len(shapes)
    network.inner.trainable = network.dense.trainable = False
    shapes = sorted(tuple(v.shape) for v in variables.trainable_variables(network))
    assert shapes == sorted([(), (5, 3), (3,)]), "what is frozen is not trained"


def test_only_what_learns_is_trainable():
    agent = Agent()
    frozen = [v for v in variables.variables(agent) if not v.trainable]
    assert len(frozen) == 3  # The counter and the moving mean and variance.
    trainable = variables.trainable_variables(agent)
    assert len(trainable) == len(variables.variables(agent)) - 3


def test_agents_made_alike_list_their_variables_alike():
    left, right = variables.variables(Agent()), variables.variables(Agent())
    assert [v.shape for v in left] == [v.shape for v in right]
