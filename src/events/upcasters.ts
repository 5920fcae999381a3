import { z } from 'zod';

/** What every event of every version has. */
export const Envelope = z.looseObject({ type: z.string(), v: z.int().nonnegative() });
export type Envelope = z.infer<typeof Envelope>;

/** Lifts one old shape to the next one: a higher `v`, or another type. Pure. */
export type Upcaster = (old: Envelope) => Envelope;

/** By `type@v` of the old shape. */
export type Upcasters = Readonly<Record<string, Upcaster>>;

/**
 * Every shape that was ever written and is not written any more. None yet: all events are at version 1. Whoever changes
 * a shape raises its `v`, adds the old one here, and keeps an old log in fixtures/logs for ever.
 */
export const UPCASTERS: Upcasters = {};

const STEPS_MAX = 100;

/** Applies upcasters until none fits. Throws an Error if they run in a circle: that registry is wrong. */
export function lift(event: Envelope, upcasters: Upcasters): Envelope {
  let lifted = event;
  for (let steps = 0; steps <= STEPS_MAX; steps += 1) {
    const key = `${lifted.type}@${String(lifted.v)}`;
    const upcaster = Object.hasOwn(upcasters, key) ? upcasters[key] : undefined;
    if (upcaster === undefined) return lifted;
    lifted = upcaster(lifted);
  }
  throw new Error(`the upcasters of ${event.type}@${String(event.v)} run in a circle`);
}
