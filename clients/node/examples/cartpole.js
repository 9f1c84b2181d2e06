// CartPole-v1: learner and actors, see README.md. The equations are those of Gymnasium's.
// @ts-check
import { main } from "../actor.js";

const GRAVITY = 9.8, CART = 1.0, POLE = 0.1, HALF_LENGTH = 0.5, FORCE = 10.0, TIME_STEP = 0.02;
const LARGEST_X = 2.4, LARGEST_ANGLE = (12 * Math.PI) / 180, LIMIT = 500;

class CartPole {
  observation = { dtype: "float32", shape: [4] };
  actions = "2 choices from 0";
  state = [0, 0, 0, 0]; // Position, speed, angle, angular speed.
  steps = 0;

  reset() {
    this.steps = 0;
    this.state = this.state.map(() => 0.1 * Math.random() - 0.05);
    return this.state;
  }

  step(/** @type {number[]} */ [action]) {
    let [x, speed, angle, turning] = this.state;
    const mass = CART + POLE, force = action === 1 ? FORCE : -FORCE;
    const [sin, cos] = [Math.sin(angle), Math.cos(angle)];
    const pushed = (force + POLE * HALF_LENGTH * turning ** 2 * sin) / mass;
    const angular = (GRAVITY * sin - cos * pushed)
      / (HALF_LENGTH * (4 / 3 - (POLE * cos ** 2) / mass));
    const linear = pushed - (POLE * HALF_LENGTH * angular * cos) / mass;
    x += TIME_STEP * speed;
    speed += TIME_STEP * linear;
    angle += TIME_STEP * turning;
    turning += TIME_STEP * angular;
    this.state = [x, speed, angle, turning];
    this.steps += 1;
    const terminated = Math.abs(x) > LARGEST_X || Math.abs(angle) > LARGEST_ANGLE;
    return { observation: this.state, reward: 1, terminated, truncated: this.steps >= LIMIT };
  }
}

main(() => new CartPole());
