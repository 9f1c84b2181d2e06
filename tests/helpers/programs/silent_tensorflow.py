"""Loads TensorFlow and lists its devices without chatter."""

from seed_rl.common.system import chatter


def main():
    with chatter.left_out():
        import tensorflow as tf

        tf.config.list_physical_devices()
    print(float(tf.ones([])))


if __name__ == "__main__":
    main()
