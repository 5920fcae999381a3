import { expect, test } from '@jest/globals';
import { Slots } from '../../src/worker/slots.js';
import { flush } from '../support/manual-clock.js';

test('so many run at a time, in the order in which they came, and one that fails gives its slot back', async () => {
  const slots = new Slots(2);
  const ran: number[] = [];
  const ends: ((error: Error | null) => void)[] = [];
  const all = [0, 1, 2, 3].map((n) =>
    slots.with(async () => {
      ran.push(n);
      const error = await new Promise<Error | null>((resolve) => ends.push(resolve));
      if (error !== null) throw error;
      return n;
    }),
  );
  const settled = Promise.allSettled(all);
  await flush();
  expect(ran).toEqual([0, 1]);
  ends[1]?.(new Error('it did not work'));
  await flush();
  expect(ran).toEqual([0, 1, 2]);
  const late = slots.with(() => Promise.resolve('late'));
  ends[0]?.(null);
  await flush();
  expect(ran).toEqual([0, 1, 2, 3]);
  ends[2]?.(null);
  ends[3]?.(null);
  expect((await settled).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
  expect(await late).toBe('late');
});
